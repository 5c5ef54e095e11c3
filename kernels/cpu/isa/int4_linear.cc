// Matrix products with int4 weights, on one thread: quantises activations, multiplies codes
// exactly, scales. Compiled without fused multiply-adds (kernels/CMakeLists.txt), and every float
// operation is done in the same order everywhere: all instruction sets give the same bits.
#include "kernels/cpu/isa/int4_linear.h"

#include "kernels/cpu/isa/int4_products.h"
#include "kernels/cpu/isa/quantise_x.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kLineBytes = kInt8Panel * kInt4Line / 2;
constexpr std::int64_t kRunLines = kInt4Run / kInt4Line;
constexpr int kInt4Vectors = static_cast<int>(kInt8Panel) / kWidth;  // of a panel
// As many sums as stay in registers beside what unpacks codes: rows x vectors. A tile unpacks its
// codes once for all its rows; to keep them unpacked for many tiles gained nothing.
constexpr int kInt4Rows = kWidth == 4 ? 1 : 4;
constexpr int panels_beside(int rows) {
  return kWidth == 16 ? 4 : kWidth == 8 && rows <= 2 ? 4 / rows : 1;
}
constexpr std::int64_t kInt4GroupRows = 48;  // whose integers of a group (6 KiB) pass together
constexpr std::int64_t kInt4BlockInputs = 2048;
constexpr std::int64_t kAheadBytes = 16 * kLineBytes;

LONGHAUL_INLINE std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// What a tile works on, at its first row and lane: groups of activations that follow each other.
struct Int4Part {
  std::int64_t group_begin;
  std::int64_t group_end;
  std::int64_t row;
  std::int64_t panel;
  float* c;  // [rows, kInt8TileLanes]; begun by group 0
};

// `ahead` says what to prefetch: the hardware's prefetcher stops at page ends. Past the end of all
// weights that is harmless.
template <int kStep>
LONGHAUL_INLINE Words load_codes(const std::uint8_t* line, std::int64_t panel_bytes, int vector,
                                 std::int64_t ahead) {
  const std::uint8_t* panel = line + vector / kInt4Vectors * panel_bytes;
  const std::int64_t lanes = vector % kInt4Vectors * kWidth * 4;
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
void multiply_int4_tile(const Int4LinearTask& task, const Int4Part& part) {
  constexpr int kVectors = kPanels * kInt4Vectors;
  // Copies: stores to c cannot change them.
  const Int4X x = task.x;
  const Int4Cut cut = task.cut;
  const std::int64_t panel_bytes = task.panel_bytes;
  const std::int64_t panel_scales = task.panel_scales;
  float* const part_c = part.c;
  const std::int64_t group_end = part.group_end;
  std::int64_t line = (cut.first_input + part.group_begin * cut.group) / kInt4Line;
  const std::uint8_t* codes = task.codes + part.panel * panel_bytes + line * kLineBytes;
  const int runs_of_scale = task.runs_of_scale;
  const int run = static_cast<int>(line / kRunLines);
  int runs_left = runs_of_scale - run % runs_of_scale;  // of the scale
  const std::uint16_t* scales =
      task.scales + part.panel * panel_scales + run / runs_of_scale * kInt8Panel;
  bool is_first = part.group_begin == 0;
  for (std::int64_t g = part.group_begin; g < group_end; ++g) {
    const std::int64_t at = g * x.n_rows + part.row;
    const std::byte* integers = x.integers + at * cut.group;
    const std::int32_t* x_sums = x.sums + g * cut.most_runs() * x.n_rows + part.row;
    const std::int64_t last =
        line + (lesser(cut.group, cut.n_in - g * cut.group) + kInt4Line - 1) / kInt4Line;
    // The last group fetches the panels of the next tile.
    const std::int64_t ahead =
        kAheadBytes + ((g + 1) * cut.group >= cut.n_in ? (kPanels - 1) * panel_bytes : 0);
    while (line < last) {
      Int4Sum sums[kRows][kVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = begin_int4_sum(x_sums[r]);
      }
      const std::int64_t end = lesser(last, line / kRunLines * kRunLines + kRunLines);
      for (; line < end; ++line, codes += kLineBytes, integers += kInt4Line) {
        add_step<0>(codes, panel_bytes, ahead, integers, cut.group, sums);
        add_step<1>(codes, panel_bytes, ahead, integers, cut.group, sums);
      }
      Vec of_lanes[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        of_lanes[v] =
            load_halves(scales + v / kInt4Vectors * panel_scales + v % kInt4Vectors * kWidth);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec x_scale = broadcast(x.scales[at + r]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          float* c = part_c + r * kInt8TileLanes + v * kWidth;
          const Ints sum = end_int4_sum(sums[r][v], x_sums[r]);
          const Vec scaled = __builtin_convertvector(sum, Vec) * of_lanes[v] * x_scale;
          store(c, is_first ? scaled : load(c) + scaled);
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
}

template <int kRows>
void multiply_int4_rows(const Int4LinearTask& task, Int4Part part, std::int64_t n_panels) {
  constexpr int kPanels = panels_beside(kRows);
  for (; n_panels >= kPanels; n_panels -= kPanels) {
    multiply_int4_tile<kRows, kPanels>(task, part);
    part.panel += kPanels;
    part.c += kPanels * kInt8Panel;
  }
  for (; n_panels > 0; --n_panels, ++part.panel, part.c += kInt8Panel)
    multiply_int4_tile<kRows, 1>(task, part);
}

template <int kRows>
LONGHAUL_INLINE void multiply_int4_some(const Int4LinearTask& task, const Int4Part& part,
                                        int n_rows, std::int64_t n_panels) {
  if (n_rows == kRows) {
    multiply_int4_rows<kRows>(task, part, n_panels);
  } else if constexpr (kRows > 1) {
    multiply_int4_some<kRows - 1>(task, part, n_rows, n_panels);
  }
}

// All rows, in tiles of nearly equal size.
void multiply_int4(const Int4LinearTask& task, Int4Part part, int n_rows, std::int64_t n_panels) {
  const int n_tiles = (n_rows + kInt4Rows - 1) / kInt4Rows;
  const int fewest = n_rows / n_tiles;
  const int n_longer = n_rows - n_tiles * fewest;
  for (int tile = 0; tile < n_tiles; ++tile) {
    const int n = tile < n_longer ? fewest + 1 : fewest;
    multiply_int4_some<kInt4Rows>(task, part, n, n_panels);
    part.row += n;
    part.c += n * kInt8TileLanes;
  }
}

// The sums [rows of the task, kInt8TileLanes] of lanes from `lane` on into `out`.
void finish_int4(const Int4LinearTask& t, std::int64_t lane, const float* sums) {
  const std::int64_t begin = lane > t.lane_begin ? lane : t.lane_begin;
  const std::int64_t end = lesser(lane + kInt8TileLanes, t.lane_end);
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row, sums += kInt8TileLanes) {
    float* out = t.out + row * t.out_stride - t.first_lane;
    for (std::int64_t i = begin; i < end; i += kWidth) {
      const std::int64_t n = lesser(kWidth, end - i);
      Vec v = load_first(sums + (i - lane), n);
      if (t.bias != nullptr) v += load_first(t.bias + i - t.first_lane, n);
      if (t.accumulate) v += load_first(out + i, n);
      store_first(out + i, v, n);
    }
  }
}

}  // namespace

void quantise_int4_x(const Int4XTask& t) {
  typedef std::int8_t Bytes __attribute__((vector_size(kWidth)));
  const Int4Cut& cut = t.cut;
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    for (std::int64_t g = 0; g * cut.group < cut.n_in; ++g) {
      const std::int64_t begin = g * cut.group;
      const std::int64_t n = lesser(cut.group, cut.n_in - begin);
      const std::int64_t at = g * t.out.n_rows + row;
      const float* x = t.x + row * cut.n_in + begin;
      std::byte* out = t.out.integers + at * cut.group;
      std::int32_t* sums = t.out.sums + g * cut.most_runs() * t.out.n_rows + row;
      const GroupScale scale = scale_of_group(x, n);
      t.out.scales[at] = scale.scale;
      if (n % kInt4Line != 0) __builtin_memset(out + n / kInt4Line * kInt4Line, 0, kInt4Line);
      std::int64_t end = lesser(n, kInt4Run - (cut.first_input + begin) % kInt4Run);
      for (std::int64_t i = 0; i < n; i = end, end = lesser(n, i + kInt4Run)) {
        const auto store_bytes = [&](std::int64_t j, Ints q) {
          const Bytes bytes = __builtin_convertvector(q, Bytes);
          __builtin_memcpy(out + i + j, &bytes,
                           static_cast<std::size_t>(lesser(kWidth, end - i - j)));
        };
        *sums = 8 * quantise_values(x + i, end - i, scale, store_bytes);
        sums += t.out.n_rows;
      }
    }
  }
}

// For 64 lanes at a time, in blocks of inputs: a block's weights stay in the second cache while all
// rows pass, and a group of it in the first while some rows do. So few rows as a tile has pass all
// groups at once.
void int4_linear(const Int4LinearTask& t) {
  const std::int64_t group = t.cut.group;
  const std::int64_t n_groups = (t.cut.n_in + group - 1) / group;
  const std::int64_t n_rows = t.row_end - t.row_begin;
  const bool is_few = n_rows <= kInt4Rows;
  const std::int64_t block_groups = is_few                     ? n_groups
                                    : group < kInt4BlockInputs ? kInt4BlockInputs / group
                                                               : 1;
  const std::int64_t groups_at_once = is_few ? n_groups : 1;
  for (std::int64_t lane = t.lane_begin / kInt8Panel * kInt8Panel; lane < t.lane_end;
       lane += kInt8TileLanes) {
    const std::int64_t n_panels =
        (lesser(kInt8TileLanes, t.lane_end - lane) + kInt8Panel - 1) / kInt8Panel;
    for (std::int64_t block = 0; block < n_groups; block += block_groups) {
      const std::int64_t end = lesser(n_groups, block + block_groups);
      for (std::int64_t row = 0; row < n_rows; row += kInt4GroupRows) {
        for (std::int64_t g = block; g < end; g += groups_at_once) {
          multiply_int4(t,
                        {.group_begin = g,
                         .group_end = lesser(end, g + groups_at_once),
                         .row = t.row_begin + row,
                         .panel = lane / kInt8Panel,
                         .c = t.scratch + row * kInt8TileLanes},
                        static_cast<int>(lesser(kInt4GroupRows, n_rows - row)), n_panels);
        }
      }
    }
    finish_int4(t, lane, t.scratch);
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
