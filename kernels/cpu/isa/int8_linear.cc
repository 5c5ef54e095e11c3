// Matrix products with int8 weights, on one thread: quantises activations, multiplies bytes
// exactly, scales. Compiled without fused multiply-adds (kernels/CMakeLists.txt), and every float
// operation is done in the same order everywhere: all instruction sets give the same bits.
#include "kernels/cpu/isa/int8_linear.h"

#include "base/int8_format.h"
#include "kernels/cpu/isa/int8_products.h"
#include "kernels/cpu/isa/quantise_x.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kPanel = static_cast<int>(kInt8Panel);
constexpr int kPanelVectors = kPanel / kWidth;
// As many sums as stay in registers: rows x vectors.
constexpr int kMostRows = kHasInt8Dot ? 6 : kWidth == 16 ? 5 : kWidth == 8 ? 4 : 1;
constexpr int kMostPanels = kWidth == 16 ? 4 : 1;
constexpr std::int64_t kStepBytes = kInt8Panel * kInt8Step;
constexpr std::int64_t kPrefetchBytes = 16 * kStepBytes;
constexpr std::int64_t kGroupRows = 48;      // whose integers of a group (6 KiB) pass together
constexpr std::int64_t kBlockInputs = 2048;  // a multiple of the usual groups

std::int64_t steps_of(std::int64_t n_in) { return (n_in + kInt8Step - 1) / kInt8Step; }

// Integers of [-127, 127] in the form of int8_products.h; n of them, in whole steps.
LONGHAUL_INLINE void store_left(std::byte* out, Ints q, std::int64_t n) {
  const std::int64_t n_steps = n < kWidth ? steps_of(n) : kWidth / kInt8Step;
#if defined(__AVX512VNNI__)
  const __m128i bytes = _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(q));
  __builtin_memcpy(out, &bytes, static_cast<std::size_t>(n_steps * kInt8LeftBytes));
#else
  for (int s = 0; s < n_steps; ++s) {
    std::int16_t halves[4];
    for (int i = 0; i < 4; ++i) {
      halves[i / 2 + i % 2 * 2] = static_cast<std::int16_t>(q[s * 4 + i]);
    }
    __builtin_memcpy(out + s * kInt8LeftBytes, halves, sizeof halves);
  }
#endif
}

// One group of one row; returns the sum of its integers.
std::int32_t quantise_group(const float* x, std::int64_t n, std::byte* out, float* scale) {
  const GroupScale s = scale_of_group(x, n);
  *scale = s.scale;
  return quantise_values(x, n, s, [&](std::int64_t i, Ints q) {
    store_left(out + i / kInt8Step * kInt8LeftBytes, q, n - i);
  });
}

// Some rows against some panels of weights, over one group of inputs.
struct Tile {
  const std::byte* x;       // [n_rows, x_stride bytes]
  const std::byte* next_x;  // of the same shape: the next group's
  std::int64_t x_stride;
  const float* x_scales;       // [n_rows]
  const std::int32_t* x_sums;  // [n_rows]
  const std::uint8_t* weight;
  std::int64_t panel_bytes;
  std::int64_t n_steps;
  bool is_first;  // group: c starts with it
  float* c;       // [n_rows, kInt8TileLanes]
};

// Weights w + 128 and integers x give sum (w + 128) x: the sums start at -128 sum x.
template <int kRows, int kPanels>
void multiply_tile(const Tile& tile) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const Tile t = tile;  // a copy: stores to c cannot change it
  Ints sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Ints{} - t.x_sums[r];
  }
  for (std::int64_t step = 0; step < t.n_steps; ++step) {
    Int8Right right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const std::uint8_t* w = t.weight + v / kPanelVectors * t.panel_bytes + step * kStepBytes;
      // Few rows wait for memory, and the hardware's prefetcher stops at page ends. Prefetching
      // past the end is harmless.
      if constexpr (kRows <= 4) {
        if (v % kPanelVectors == 0) __builtin_prefetch(w + kPrefetchBytes);
      }
      right[v] = unpack_int8(load_words(w + v % kPanelVectors * kWidth * 4));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Int8Left left = load_int8_left(t.x + r * t.x_stride + step * kInt8LeftBytes);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = add_int8_products(sums[r][v], right[v], left);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Vec scale = broadcast(t.x_scales[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* c = t.c + r * kInt8TileLanes + v * kWidth;
      const Vec scaled = __builtin_convertvector(sums[r][v], Vec) * scale;
      store(c, t.is_first ? scaled : load(c) + scaled);
    }
  }
}

template <int kRows, int kPanels>
LONGHAUL_INLINE void multiply_rows(std::int64_t n_rows, const Tile& t) {
  if (n_rows == kRows) {
    multiply_tile<kRows, kPanels>(t);
  } else if constexpr (kRows > 1) {
    multiply_rows<kRows - 1, kPanels>(n_rows, t);
  }
}

// Steps [begin, end) of the weights that follow t's: with many rows the caches have time to fetch
// them meanwhile.
LONGHAUL_INLINE void prefetch_following(const Tile& t, int n_panels, std::int64_t begin,
                                        std::int64_t end) {
  for (std::int64_t step = begin; step < end && step < t.n_steps; ++step) {
    for (int panel = 0; panel < n_panels; ++panel) {
      __builtin_prefetch(t.weight + panel * t.panel_bytes + (t.n_steps + step) * kStepBytes);
    }
  }
}

LONGHAUL_INLINE void prefetch_bytes(const std::byte* p, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 64) __builtin_prefetch(p + i);
}

// All rows, in parts of nearly equal size. (In 32 bits: a division in 64 takes as long as a third
// of a tile.)
template <int kPanels>
void multiply_panels(std::int64_t n_rows, const Tile& whole) {
  const int n_parts = (static_cast<int>(n_rows) + kMostRows - 1) / kMostRows;
  const int fewest = static_cast<int>(n_rows) / n_parts;
  const int n_longer = static_cast<int>(n_rows) - n_parts * fewest;
  const int n_ahead = n_parts < 4 ? 0 : (static_cast<int>(whole.n_steps) + n_parts - 1) / n_parts;
  Tile t = whole;
  for (int part = 0; part < n_parts; ++part) {
    prefetch_following(whole, kPanels, std::int64_t{part} * n_ahead,
                       std::int64_t{part + 1} * n_ahead);
    const std::int64_t n = part < n_longer ? fewest + 1 : fewest;
    prefetch_bytes(t.next_x, n * t.x_stride);
    multiply_rows<kMostRows, kPanels>(n, t);
    t.x += n * t.x_stride;
    t.next_x += n * t.x_stride;
    t.x_scales += n;
    t.x_sums += n;
    t.c += n * kInt8TileLanes;
  }
}

void multiply(std::int64_t n_rows, std::int64_t n_panels, const Tile& t) {
  std::int64_t panel = 0;
  for (; panel + kMostPanels <= n_panels; panel += kMostPanels) {
    Tile part = t;
    part.weight += panel * t.panel_bytes;
    part.c += panel * kPanel;
    multiply_panels<kMostPanels>(n_rows, part);
  }
  if constexpr (kMostPanels > 1) {
    for (; panel < n_panels; ++panel) {
      Tile part = t;
      part.weight += panel * t.panel_bytes;
      part.c += panel * kPanel;
      multiply_panels<1>(n_rows, part);
    }
  }
}

// Scales the sums [rows of the task, kInt8TileLanes] of lanes from `lane` on into `out`.
void finish(const Int8LinearTask& t, std::int64_t lane) {
  const std::int64_t begin = lane > t.lane_begin ? lane : t.lane_begin;
  const std::int64_t end = lane + kInt8TileLanes < t.lane_end ? lane + kInt8TileLanes : t.lane_end;
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    const float* c = t.scratch + (row - t.row_begin) * kInt8TileLanes - lane;
    float* out = t.out + row * t.out_stride - t.first_lane;
    const float* bias = t.bias == nullptr ? nullptr : t.bias - t.first_lane;
    for (std::int64_t i = begin; i < end; i += kWidth) {
      const std::int64_t n = end - i;
      const bool whole = n >= kWidth;
      const auto part = [&](const float* p) { return whole ? load(p) : load_first(p, n); };
      Vec v = part(c + i) * part(t.scales + i);
      if (bias != nullptr) v += part(bias + i);
      if (t.accumulate) v += part(out + i);
      if (whole) {
        store(out + i, v);
      } else {
        store_first(out + i, v, n);
      }
    }
  }
}

}  // namespace

std::int64_t int8_x_bytes(std::int64_t group) { return steps_of(group) * kInt8LeftBytes; }

void quantise_int8_x(const Int8XTask& t) {
  const std::int64_t row_bytes = int8_x_bytes(t.group);
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    std::int64_t at = row;  // of the row in its group
    for (std::int64_t begin = 0; begin < t.n_in; begin += t.group, at += t.out.n_rows) {
      const std::int64_t n = t.n_in - begin < t.group ? t.n_in - begin : t.group;
      t.out.sums[at] = 128 * quantise_group(t.x + row * t.n_in + begin, n,
                                            t.out.integers + at * row_bytes, t.out.scales + at);
    }
  }
}

// For 64 lanes at a time, in blocks of inputs: a block's weights (128 KiB) stay in the second cache
// while all rows pass, and a group of it (8 KiB for a group of 128) in the first while some rows
// do.
void int8_linear(const Int8LinearTask& t) {
  const std::int64_t n_groups = (t.n_in + t.group - 1) / t.group;
  const std::int64_t block_groups = t.group < kBlockInputs ? kBlockInputs / t.group : 1;
  const std::int64_t x_stride = int8_x_bytes(t.group);
  for (std::int64_t lane = t.lane_begin / kPanel * kPanel; lane < t.lane_end;
       lane += kInt8TileLanes) {
    const std::int64_t lanes_left = t.lane_end - lane;
    const std::int64_t n_panels =
        ((lanes_left < kInt8TileLanes ? lanes_left : kInt8TileLanes) + kPanel - 1) / kPanel;
    const auto multiply_group = [&](std::int64_t g, std::int64_t row, std::int64_t n_rows) {
      const std::int64_t begin = g * t.group;
      const std::int64_t size = t.n_in - begin < t.group ? t.n_in - begin : t.group;
      const std::int64_t at = g * t.x.n_rows + row;
      multiply(n_rows, n_panels,
               {.x = t.x.integers + at * x_stride,
                .next_x = t.x.integers + (at + t.x.n_rows) * x_stride,
                .x_stride = x_stride,
                .x_scales = t.x.scales + at,
                .x_sums = t.x.sums + at,
                .weight = t.weight + lane / kPanel * t.panel_bytes + begin / kInt8Step * kStepBytes,
                .panel_bytes = t.panel_bytes,
                .n_steps = steps_of(size),
                .is_first = g == 0,
                .c = t.scratch + (row - t.row_begin) * kInt8TileLanes});
    };
    for (std::int64_t block = 0; block < n_groups; block += block_groups) {
      const std::int64_t end = block + block_groups < n_groups ? block + block_groups : n_groups;
      for (std::int64_t row = t.row_begin; row < t.row_end; row += kGroupRows) {
        const std::int64_t left = t.row_end - row;
        for (std::int64_t g = block; g < end; ++g) {
          multiply_group(g, row, left < kGroupRows ? left : kGroupRows);
        }
      }
    }
    finish(t, lane);
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
