// Matrix products with int8 weights, on one thread: quantises activations, multiplies bytes
// exactly, scales. Compiled without fused multiply-adds (kernels/CMakeLists.txt), and every float
// operation is done in the same order everywhere: all instruction sets give the same bits.
#include "kernels/cpu/isa/int8_linear.h"

#include "base/int8_format.h"
#include "kernels/cpu/isa/group_tiles.h"
#include "kernels/cpu/isa/int8_products.h"
#include "kernels/cpu/isa/quantise_x.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kStepBytes = kInt8Panel * kInt8Step;

std::int64_t steps_of(std::int64_t n_in) { return quotient_up(n_in, kInt8Step); }
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

// Weights w + 128 and integers x give sum (w + 128) x: the sums start at -128 sum x.
template <int kRows, int kPanels>
void multiply_int8_tile(const Int8LinearTask& task, const GroupTile& tile) {
  constexpr int kVectors = kPanels * kPanelVectors;
  // Copies: stores to c cannot change them.
  const Int8X x = task.x;
  const std::int64_t group = task.group;
  const std::int64_t n_in = task.n_in;
  const std::int64_t x_stride = x_bytes(group);
  const std::int64_t panel_bytes = task.panel_bytes;
  TileSums<kRows, kVectors> so_far(tile);
  const std::int64_t group_end = tile.group_end;
  const std::int64_t bytes_ahead = tile.bytes_ahead;
  const std::uint8_t* weight =
      task.weight + tile.panel * panel_bytes + tile.group_begin * group / kInt8Step * kStepBytes;
  bool is_first = tile.group_begin == 0;
  for (std::int64_t g = tile.group_begin; g < group_end; ++g, is_first = false) {
    const std::int64_t at = g * x.n_rows + tile.row;
    const std::byte* integers = x.integers + at * x_stride;
    Ints sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Ints{} - x.sums[at + r];
    }
    const std::uint8_t* const last =
        weight + steps_of(smaller(group, n_in - g * group)) * kStepBytes;
    const std::int64_t ahead =
        bytes_ahead +
        (tile.asks_for_next && (g + 1) * group >= n_in ? (kPanels - 1) * panel_bytes : 0);
    for (; weight < last; weight += kStepBytes, integers += kInt8LeftBytes) {
      Int8Right right[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const std::uint8_t* w = weight + v / kPanelVectors * panel_bytes;
        // Few rows wait for memory, and the hardware's prefetcher stops at page ends. Prefetching
        // past the end is harmless.
        if constexpr (kRows <= 4 || kPanels == 1) {
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
        const Vec scaled = __builtin_convertvector(sums[r][v], Vec) * scale;
        so_far.add(r, v, scaled, is_first);
      }
    }
  }
  so_far.finish();
}

// Steps [begin, end) of the weights behind the tile's group: with many rows the caches have time to
// fetch them meanwhile.
LONGHAUL_INLINE void prefetch_following(const Int8LinearTask& task, const GroupTile& tile,
                                        std::int64_t n_panels, std::int64_t begin,
                                        std::int64_t end) {
  const std::uint8_t* following = task.weight + tile.panel * task.panel_bytes +
                                  tile.group_end * task.group / kInt8Step * kStepBytes;
  for (std::int64_t step = begin; step < smaller(end, steps_of(task.group)); ++step) {
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

// Scales the sums [rows of the task, kInt8TileLanes] of lanes from `lane` on into `out`.
void finish_int8(const Int8LinearTask& t, std::int64_t lane) {
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

struct Int8Format {
  using Task = Int8LinearTask;
  // As many sums as stay in registers: rows x vectors.
  static constexpr int kMostRows = kHasInt8Dot ? 6 : kWidth == 16 ? 5 : kWidth == 8 ? 4 : 1;
  static constexpr std::int64_t kBytesAheadInBlocks = 32 * kStepBytes;
  static GroupedInputs inputs(const Task& t) { return {t.n_in, t.group}; }
  template <int kRows, int kPanels>
  static void multiply_tile(const Task& task, const GroupTile& tile) {
    multiply_int8_tile<kRows, kPanels>(task, tile);
  }
  static void prefetch(const Task& task, const GroupTile& tile, int n_rows, std::int64_t n_panels,
                       int part, int n_parts) {
    const auto n_steps = static_cast<int>(steps_of(task.group));
    const int n_ahead = n_parts < 4 ? 0 : (n_steps + n_parts - 1) / n_parts;
    prefetch_following(task, tile, n_panels, std::int64_t{part} * n_ahead,
                       std::int64_t{part + 1} * n_ahead);
    prefetch_integers(task, tile.group_end, tile.row, n_rows);
  }
  static void finish(const Task& task, std::int64_t lane) { finish_int8(task, lane); }
};

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

void int8_linear(const Int8LinearTask& t) { multiply_in_groups<Int8Format>(t); }

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
