// Matrix products with int4 weights, on one thread: quantises activations, multiplies codes
// exactly, scales. Compiled without fused multiply-adds (kernels/CMakeLists.txt), and every float
// operation is done in the same order everywhere: all instruction sets give the same bits.
#include "kernels/cpu/isa/int4_linear.h"

#include "kernels/cpu/isa/group_tiles.h"
#include "kernels/cpu/isa/int4_products.h"
#include "kernels/cpu/isa/quantise_x.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kLineBytes = kInt8Panel * kInt4Line / 2;
constexpr std::int64_t kRunLines = kInt4Run / kInt4Line;

// `ahead` says what to prefetch: the hardware's prefetcher stops at page ends. Past the end of all
// weights that is harmless.
template <int kStep>
LONGHAUL_INLINE Words load_codes(const std::uint8_t* line, std::int64_t panel_bytes, int vector,
                                 std::int64_t ahead) {
  const std::uint8_t* panel = line + vector / kPanelVectors * panel_bytes;
  const std::int64_t lanes = vector % kPanelVectors * kWidth * 4;
  if (kStep == 0 && lanes == 0) __builtin_prefetch(panel + ahead);
  return codes_of_step<kStep>(load_words(panel + lanes));
}

template <int kStep, int kRows, int kVectors>
LONGHAUL_INLINE void add_step(const std::uint8_t* line, std::int64_t panel_bytes,
                              std::int64_t ahead, const std::byte* x, std::int64_t x_stride,
                              Int4Sum (&sums)[kRows][kVectors]) {
  Words codes[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) codes[v] = load_codes<kStep>(line, panel_bytes, v, ahead);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Words integers = broadcast_word(x + r * x_stride + kStep * kInt8Step);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = add_int4_products(sums[r][v], codes[v], integers);
  }
}

// Codes q + 8 and integers x give sum (q + 8) x: 8 sum x is taken away.
template <int kRows, int kPanels>
void multiply_int4_tile(const Int4LinearTask& task, const GroupTile& tile) {
  constexpr int kVectors = kPanels * kPanelVectors;
  // Copies: stores to c cannot change them.
  const Int4X x = task.x;
  const Int4Cut cut = task.cut;
  const std::int64_t panel_bytes = task.panel_bytes;
  const std::int64_t panel_scales = task.panel_scales;
  TileSums<kRows, kVectors> so_far(tile);
  const std::int64_t group_end = tile.group_end;
  const std::int64_t bytes_ahead = tile.bytes_ahead;
  std::int64_t line = (cut.first_input + tile.group_begin * cut.group) / kInt4Line;
  const std::uint8_t* codes = task.codes + tile.panel * panel_bytes + line * kLineBytes;
  const int runs_of_scale = task.runs_of_scale;
  const int run = static_cast<int>(line / kRunLines);
  int runs_left = runs_of_scale - run % runs_of_scale;  // of the scale
  const std::uint16_t* scales =
      task.scales + tile.panel * panel_scales + run / runs_of_scale * kInt8Panel;
  bool is_first = tile.group_begin == 0;
  for (std::int64_t g = tile.group_begin; g < group_end; ++g) {
    const std::int64_t at = g * x.n_rows + tile.row;
    const std::byte* integers = x.integers + at * cut.group;
    const std::int32_t* x_sums = x.sums + g * cut.most_runs() * x.n_rows + tile.row;
    const std::int64_t last =
        line + quotient_up(smaller(cut.group, cut.n_in - g * cut.group), kInt4Line);
    const std::int64_t ahead =
        bytes_ahead +
        (tile.asks_for_next && (g + 1) * cut.group >= cut.n_in ? (kPanels - 1) * panel_bytes : 0);
    while (line < last) {
      Int4Sum sums[kRows][kVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = begin_int4_sum(x_sums[r]);
      }
      const std::int64_t end = smaller(last, line / kRunLines * kRunLines + kRunLines);
      for (; line < end; ++line, codes += kLineBytes, integers += kInt4Line) {
        add_step<0>(codes, panel_bytes, ahead, integers, cut.group, sums);
        add_step<1>(codes, panel_bytes, ahead, integers, cut.group, sums);
      }
      Vec of_lanes[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        of_lanes[v] =
            load_halves(scales + v / kPanelVectors * panel_scales + v % kPanelVectors * kWidth);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec x_scale = broadcast(x.scales[at + r]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const Ints sum = end_int4_sum(sums[r][v], x_sums[r]);
          const Vec scaled = __builtin_convertvector(sum, Vec) * of_lanes[v] * x_scale;
          so_far.add(r, v, scaled, is_first);
        }
      }
      is_first = false;
      x_sums += x.n_rows;
      // Where a group ends within a run, the next one goes on with it.
      if (line % kRunLines == 0 && --runs_left == 0) {
        scales += kInt8Panel;
        runs_left = runs_of_scale;
      }
    }
  }
  so_far.finish();
}

// The sums [rows of the task, kInt8TileLanes] of lanes from `lane` on into `out`.
void finish_int4(const Int4LinearTask& t, std::int64_t lane, const float* sums) {
  const std::int64_t begin = lane > t.lane_begin ? lane : t.lane_begin;
  const std::int64_t end = smaller(lane + kInt8TileLanes, t.lane_end);
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row, sums += kInt8TileLanes) {
    float* out = t.out + row * t.out_stride - t.first_lane;
    for (std::int64_t i = begin; i < end; i += kWidth) {
      const std::int64_t n = smaller(kWidth, end - i);
      Vec v = load_first(sums + (i - lane), n);
      if (t.bias != nullptr) v += load_first(t.bias + i - t.first_lane, n);
      if (t.accumulate) v += load_first(out + i, n);
      store_first(out + i, v, n);
    }
  }
}

struct Int4Format {
  using Task = Int4LinearTask;
  // As many sums as stay in registers beside what unpacks codes: rows x vectors. A tile unpacks its
  // codes once for all its rows; to keep them unpacked for many tiles gained nothing.
  static constexpr int kMostRows = kWidth == 4 ? 1 : 4;
  static constexpr std::int64_t kBytesAheadInBlocks = 16 * kLineBytes;
  static GroupedInputs inputs(const Task& t) { return {t.cut.n_in, t.cut.group}; }
  template <int kRows, int kPanels>
  static void multiply_tile(const Task& task, const GroupTile& tile) {
    multiply_int4_tile<kRows, kPanels>(task, tile);
  }
  static void prefetch(const Task&, const GroupTile&, int, std::int64_t, int, int) {}
  static void finish(const Task& task, std::int64_t lane) { finish_int4(task, lane, task.scratch); }
};

}  // namespace

void quantise_int4_x(const Int4XTask& t) {
  typedef std::int8_t Bytes __attribute__((vector_size(kWidth)));
  const Int4Cut& cut = t.cut;
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    for (std::int64_t g = 0; g * cut.group < cut.n_in; ++g) {
      const std::int64_t begin = g * cut.group;
      const std::int64_t n = smaller(cut.group, cut.n_in - begin);
      const std::int64_t at = g * t.out.n_rows + row;
      const float* x = t.x + row * cut.n_in + begin;
      std::byte* out = t.out.integers + at * cut.group;
      std::int32_t* sums = t.out.sums + g * cut.most_runs() * t.out.n_rows + row;
      const GroupScale scale = scale_of_group(x, n);
      t.out.scales[at] = scale.scale;
      if (n % kInt4Line != 0) __builtin_memset(out + n / kInt4Line * kInt4Line, 0, kInt4Line);
      std::int64_t end = smaller(n, kInt4Run - (cut.first_input + begin) % kInt4Run);
      for (std::int64_t i = 0; i < n; i = end, end = smaller(n, i + kInt4Run)) {
        const auto store_bytes = [&](std::int64_t j, Ints q) {
          const Bytes bytes = __builtin_convertvector(q, Bytes);
          __builtin_memcpy(out + i + j, &bytes,
                           static_cast<std::size_t>(smaller(kWidth, end - i - j)));
        };
        *sums = 8 * quantise_values(x + i, end - i, scale, store_bytes);
        sums += t.out.n_rows;
      }
    }
  }
}

void int4_linear(const Int4LinearTask& t) { multiply_in_groups<Int4Format>(t); }

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
