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
constexpr int kInt4Panels = kWidth == 16 ? 4 : 1;
constexpr std::int64_t kInt4GroupRows = 48;  // whose integers of a group (6 KiB) pass together
constexpr std::int64_t kInt4BlockInputs = 2048;
constexpr std::int64_t kAheadBytes = 16 * kLineBytes;

LONGHAUL_INLINE std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Some rows against some panels of weights, over one group of activations.
struct Int4Tile {
  const std::byte* x;  // [n_rows, x_stride bytes]
  std::int64_t x_stride;
  const float* x_scales;       // [n_rows]
  const std::int32_t* x_sums;  // [runs, sums_stride]
  std::int64_t sums_stride;
  const std::uint8_t* codes;  // of the group's first line
  std::int64_t panel_bytes;
  const std::uint16_t* scales;  // of its first run
  std::int64_t panel_scales;
  int runs_of_scale;
  int runs_left;             // of the first scale
  std::int64_t first_lines;  // of the first run
  std::int64_t n_lines;
  bool is_first;  // group: c starts with it
  float* c;       // [n_rows, kInt8TileLanes]
};

template <int kStep>
LONGHAUL_INLINE Words load_codes(const Int4Tile& t, int vector, std::int64_t line) {
  const std::uint8_t* panel = t.codes + vector / kInt4Vectors * t.panel_bytes;
  const std::int64_t lanes = vector % kInt4Vectors * kWidth * 4;
  // The hardware's prefetcher stops at page ends. Prefetching past the end is harmless.
  if (kStep == 0 && lanes == 0) __builtin_prefetch(panel + line * kLineBytes + kAheadBytes);
  return codes_of_step<kStep>(load_words(panel + line * kLineBytes + lanes));
}

template <int kStep, int kRows, int kVectors>
LONGHAUL_INLINE void add_step(const Int4Tile& t, std::int64_t line,
                              Int4Sum (&sums)[kRows][kVectors]) {
  Words codes[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) codes[v] = load_codes<kStep>(t, v, line);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Words x = broadcast_word(t.x + r * t.x_stride + line * kInt4Line + kStep * kInt8Step);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = add_int4_products(sums[r][v], codes[v], x);
  }
}

// Codes q + 8 and integers x give sum (q + 8) x: 8 sum x is taken away.
template <int kRows, int kPanels>
void multiply_int4_tile(const Int4Tile& tile) {
  constexpr int kVectors = kPanels * kInt4Vectors;
  Int4Tile t = tile;  // a copy: stores to c cannot change it
  std::int64_t end = lesser(t.n_lines, t.first_lines);
  for (std::int64_t line = 0; line < t.n_lines; end = lesser(t.n_lines, line + kRunLines)) {
    Int4Sum sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = begin_int4_sum(t.x_sums[r]);
    }
    for (; line < end; ++line) {
      add_step<0>(t, line, sums);
      add_step<1>(t, line, sums);
    }
    Vec scales[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      scales[v] =
          load_halves(t.scales + v / kInt4Vectors * t.panel_scales + v % kInt4Vectors * kWidth);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x_scale = broadcast(t.x_scales[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* c = t.c + r * kInt8TileLanes + v * kWidth;
        const Ints sum = end_int4_sum(sums[r][v], t.x_sums[r]);
        const Vec scaled = __builtin_convertvector(sum, Vec) * scales[v] * x_scale;
        store(c, t.is_first ? scaled : load(c) + scaled);
      }
    }
    t.is_first = false;
    t.x_sums += t.sums_stride;
    if (--t.runs_left == 0) {
      t.scales += kInt8Panel;
      t.runs_left = t.runs_of_scale;
    }
  }
}

template <int kRows, int kPanels>
LONGHAUL_INLINE void multiply_int4_rows(std::int64_t n_rows, const Int4Tile& t) {
  if (n_rows == kRows) {
    multiply_int4_tile<kRows, kPanels>(t);
  } else if constexpr (kRows > 1) {
    multiply_int4_rows<kRows - 1, kPanels>(n_rows, t);
  }
}

// All rows, in parts of nearly equal size.
template <int kPanels>
void multiply_int4_panels(std::int64_t n_rows, Int4Tile t) {
  const int n_parts = (static_cast<int>(n_rows) + kInt4Rows - 1) / kInt4Rows;
  const int fewest = static_cast<int>(n_rows) / n_parts;
  const int n_longer = static_cast<int>(n_rows) - n_parts * fewest;
  for (int part = 0; part < n_parts; ++part) {
    const std::int64_t n = part < n_longer ? fewest + 1 : fewest;
    multiply_int4_rows<kInt4Rows, kPanels>(n, t);
    t.x += n * t.x_stride;
    t.x_scales += n;
    t.x_sums += n;
    t.c += n * kInt8TileLanes;
  }
}

void multiply_int4(std::int64_t n_rows, std::int64_t n_panels, const Int4Tile& t) {
  const auto part_at = [&](std::int64_t panel) {
    Int4Tile part = t;
    part.codes += panel * t.panel_bytes;
    part.scales += panel * t.panel_scales;
    part.c += panel * kInt8Panel;
    return part;
  };
  std::int64_t panel = 0;
  for (; panel + kInt4Panels <= n_panels; panel += kInt4Panels)
    multiply_int4_panels<kInt4Panels>(n_rows, part_at(panel));
  if constexpr (kInt4Panels > 1) {
    for (; panel < n_panels; ++panel) multiply_int4_panels<1>(n_rows, part_at(panel));
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

// Rows [row, row + n_rows) times a group's inputs of the panels from `lane` on.
void multiply_int4_group(const Int4LinearTask& t, std::int64_t g, std::int64_t row,
                         std::int64_t n_rows, std::int64_t lane, std::int64_t n_panels) {
  const Int4Cut& cut = t.cut;
  const std::int64_t begin = g * cut.group;
  const std::int64_t line = (cut.first_input + begin) / kInt4Line;
  const int run = static_cast<int>(line / kRunLines);
  const std::int64_t panel = lane / kInt8Panel;
  const std::int64_t at = g * t.x.n_rows + row;
  const Int4Tile tile = {
      .x = t.x.integers + at * cut.group,
      .x_stride = cut.group,
      .x_scales = t.x.scales + at,
      .x_sums = t.x.sums + g * cut.most_runs() * t.x.n_rows + row,
      .sums_stride = t.x.n_rows,
      .codes = t.codes + panel * t.panel_bytes + line * kLineBytes,
      .panel_bytes = t.panel_bytes,
      .scales = t.scales + panel * t.panel_scales + run / t.runs_of_scale * kInt8Panel,
      .panel_scales = t.panel_scales,
      .runs_of_scale = t.runs_of_scale,
      .runs_left = t.runs_of_scale - run % t.runs_of_scale,
      .first_lines = kRunLines - line % kRunLines,
      .n_lines = (lesser(cut.group, cut.n_in - begin) + kInt4Line - 1) / kInt4Line,
      .is_first = g == 0,
      .c = t.scratch + (row - t.row_begin) * kInt8TileLanes};
  multiply_int4(n_rows, n_panels, tile);
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
// rows pass, and a group of it in the first while some rows do.
void int4_linear(const Int4LinearTask& t) {
  const std::int64_t group = t.cut.group;
  const std::int64_t n_groups = (t.cut.n_in + group - 1) / group;
  const std::int64_t block_groups = group < kInt4BlockInputs ? kInt4BlockInputs / group : 1;
  for (std::int64_t lane = t.lane_begin / kInt8Panel * kInt8Panel; lane < t.lane_end;
       lane += kInt8TileLanes) {
    const std::int64_t n_panels =
        (lesser(kInt8TileLanes, t.lane_end - lane) + kInt8Panel - 1) / kInt8Panel;
    for (std::int64_t block = 0; block < n_groups; block += block_groups) {
      for (std::int64_t row = t.row_begin; row < t.row_end; row += kInt4GroupRows) {
        const std::int64_t n_rows = lesser(kInt4GroupRows, t.row_end - row);
        for (std::int64_t g = block; g < lesser(n_groups, block + block_groups); ++g)
          multiply_int4_group(t, g, row, n_rows, lane, n_panels);
      }
    }
    finish_int4(t, lane, t.scratch);
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
