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
constexpr int panels_beside(int rows) {
  return kWidth == 16 ? 4 : kWidth == 8 && rows <= 2 ? 4 / rows : 1;
}
constexpr std::int64_t kStepBytes = kInt8Panel * kInt8Step;
constexpr std::int64_t kPrefetchBytes = 32 * kStepBytes;
constexpr std::int64_t kGroupRows = 48;      // whose integers of a group (6 KiB) pass together
constexpr std::int64_t kBlockInputs = 2048;  // a multiple of the usual groups

std::int64_t steps_of(std::int64_t n_in) { return (n_in + kInt8Step - 1) / kInt8Step; }
std::int64_t x_bytes(std::int64_t group) { return steps_of(group) * kInt8LeftBytes; }

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

std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// What a tile works on, at its first row and lane: groups of inputs that follow each other.
struct Part {
  std::int64_t group_begin;
  std::int64_t group_end;
  std::int64_t row;
  std::int64_t panel;
  float* c;  // [rows, kInt8TileLanes]; begun by group 0
};

// Weights w + 128 and integers x give sum (w + 128) x: the sums start at -128 sum x.
template <int kRows, int kPanels>
void multiply_tile(const Int8LinearTask& task, const Part& part) {
  constexpr int kVectors = kPanels * kPanelVectors;
  // Copies: stores to c cannot change them.
  const Int8X x = task.x;
  const std::int64_t group = task.group;
  const std::int64_t n_in = task.n_in;
  const std::int64_t x_stride = x_bytes(group);
  const std::int64_t panel_bytes = task.panel_bytes;
  float* const part_c = part.c;
  const std::int64_t group_end = part.group_end;
  const std::uint8_t* weight =
      task.weight + part.panel * panel_bytes + part.group_begin * group / kInt8Step * kStepBytes;
  bool is_first = part.group_begin == 0;
  for (std::int64_t g = part.group_begin; g < group_end; ++g, is_first = false) {
    const std::int64_t at = g * x.n_rows + part.row;
    const std::byte* integers = x.integers + at * x_stride;
    Ints sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Ints{} - x.sums[at + r];
    }
    const std::uint8_t* const last =
        weight + steps_of(lesser(group, n_in - g * group)) * kStepBytes;
    // The last group fetches the panels of the next tile.
    const std::int64_t ahead =
        kPrefetchBytes + ((g + 1) * group >= n_in ? (kPanels - 1) * panel_bytes : 0);
    for (; weight < last; weight += kStepBytes, integers += kInt8LeftBytes) {
      Int8Right right[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const std::uint8_t* w = weight + v / kPanelVectors * panel_bytes;
        // Few rows wait for memory, and the hardware's prefetcher stops at page ends. Prefetching
        // past the end is harmless.
        if constexpr (kRows <= 4) {
          if (v % kPanelVectors == 0) __builtin_prefetch(w + ahead);
        }
        right[v] = unpack_int8(load_words(w + v % kPanelVectors * kWidth * 4));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int8Left left = load_int8_left(integers + r * x_stride);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = add_int8_products(sums[r][v], right[v], left);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec scale = broadcast(x.scales[at + r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* c = part_c + r * kInt8TileLanes + v * kWidth;
        const Vec scaled = __builtin_convertvector(sums[r][v], Vec) * scale;
        store(c, is_first ? scaled : load(c) + scaled);
      }
    }
  }
}

template <int kRows>
void multiply_rows(const Int8LinearTask& task, Part part, std::int64_t n_panels) {
  constexpr int kPanels = panels_beside(kRows);
  for (; n_panels >= kPanels; n_panels -= kPanels) {
    multiply_tile<kRows, kPanels>(task, part);
    part.panel += kPanels;
    part.c += kPanels * kPanel;
  }
  for (; n_panels > 0; --n_panels, ++part.panel, part.c += kPanel)
    multiply_tile<kRows, 1>(task, part);
}

template <int kRows>
LONGHAUL_INLINE void multiply_some(const Int8LinearTask& task, const Part& part, int n_rows,
                                   std::int64_t n_panels) {
  if (n_rows == kRows) {
    multiply_rows<kRows>(task, part, n_panels);
  } else if constexpr (kRows > 1) {
    multiply_some<kRows - 1>(task, part, n_rows, n_panels);
  }
}

// Steps [begin, end) of the weights behind part's group: with many rows the caches have time to
// fetch them meanwhile.
LONGHAUL_INLINE void prefetch_following(const Int8LinearTask& task, const Part& part,
                                        std::int64_t n_panels, std::int64_t begin,
                                        std::int64_t end) {
  const std::uint8_t* following = task.weight + part.panel * task.panel_bytes +
                                  part.group_end * task.group / kInt8Step * kStepBytes;
  for (std::int64_t step = begin; step < lesser(end, steps_of(task.group)); ++step) {
    for (std::int64_t panel = 0; panel < n_panels; ++panel)
      __builtin_prefetch(following + panel * task.panel_bytes + step * kStepBytes);
  }
}

// The integers of rows [row, row + n) of a group.
LONGHAUL_INLINE void prefetch_integers(const Int8LinearTask& task, std::int64_t group,
                                       std::int64_t row, std::int64_t n) {
  const std::int64_t row_bytes = x_bytes(task.group);
  const std::byte* p = task.x.integers + (group * task.x.n_rows + row) * row_bytes;
  for (std::int64_t i = 0; i < n * row_bytes; i += 64) __builtin_prefetch(p + i);
}

// All rows, in tiles of nearly equal size. (In 32 bits: a division in 64 takes as long as a third
// of a tile.)
void multiply(const Int8LinearTask& task, Part part, int n_rows, std::int64_t n_panels) {
  const int n_tiles = (n_rows + kMostRows - 1) / kMostRows;
  const int fewest = n_rows / n_tiles;
  const int n_longer = n_rows - n_tiles * fewest;
  const int n_ahead =
      n_tiles < 4 ? 0 : (static_cast<int>(steps_of(task.group)) + n_tiles - 1) / n_tiles;
  for (int tile = 0; tile < n_tiles; ++tile) {
    const int n = tile < n_longer ? fewest + 1 : fewest;
    prefetch_following(task, part, n_panels, std::int64_t{tile} * n_ahead,
                       std::int64_t{tile + 1} * n_ahead);
    prefetch_integers(task, part.group_end, part.row, n);
    multiply_some<kMostRows>(task, part, n, n_panels);
    part.row += n;
    part.c += n * kInt8TileLanes;
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

std::int64_t int8_x_bytes(std::int64_t group) { return x_bytes(group); }

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
// do. So few rows as a tile has pass all groups at once.
void int8_linear(const Int8LinearTask& t) {
  const std::int64_t n_groups = (t.n_in + t.group - 1) / t.group;
  const std::int64_t n_rows = t.row_end - t.row_begin;
  const bool is_few = n_rows <= kMostRows;
  const std::int64_t block_groups = is_few                   ? n_groups
                                    : t.group < kBlockInputs ? kBlockInputs / t.group
                                                             : 1;
  const std::int64_t groups_at_once = is_few ? n_groups : 1;
  for (std::int64_t lane = t.lane_begin / kPanel * kPanel; lane < t.lane_end;
       lane += kInt8TileLanes) {
    const std::int64_t n_panels = (lesser(kInt8TileLanes, t.lane_end - lane) + kPanel - 1) / kPanel;
    for (std::int64_t block = 0; block < n_groups; block += block_groups) {
      const std::int64_t end = lesser(n_groups, block + block_groups);
      for (std::int64_t row = 0; row < n_rows; row += kGroupRows) {
        for (std::int64_t g = block; g < end; g += groups_at_once) {
          multiply(t,
                   {.group_begin = g,
                    .group_end = lesser(end, g + groups_at_once),
                    .row = t.row_begin + row,
                    .panel = lane / kPanel,
                    .c = t.scratch + row * kInt8TileLanes},
                   static_cast<int>(lesser(kGroupRows, n_rows - row)), n_panels);
        }
      }
    }
    finish(t, lane);
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
