// How matrix products of many rows with integer weights go by AMX, for amx_int8_linear.cc and
// amx_int4_linear.cc. Inputs come in parts, whose products are added up as integers and then
// scaled: a group of activations with int8 weights, a run with int4. Weights become signed bytes on
// their way from memory, so that sums need no correction.
//
// A Format says, beside what amx_integer_block.h needs: Task (int8_linear.h, int4_linear.h);
// n_parts(task), part_inputs(task), and n_tiles(task) along a part; is_usual(task); x_stride(task),
// x(task, part, row) and x_scales(task, part, row); codes(task, lane, part) as they are in memory,
// and kCodeBytes that a panel has of an input; pair_bytes(n_tiles) of two panels' copied weights
// of a part; copy_panel(task, lane, part, pair, column) into column 0 or 1 of them;
// finish_lanes(task, first lane, n lanes, sums, out).
#pragma once
#include "base/int8_format.h"
#include "kernels/cpu/isa/amx_integer_block.h"
#include "kernels/cpu/isa/int8_linear.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

static_assert(kInt8Panel == kAmxColumns);

// Floats of so many rows and lanes stay in the first cache while parts of inputs pass.
constexpr std::int64_t kNearRows = 64;
constexpr std::int64_t kNearLanes = 64;
constexpr std::int64_t kNearPanels = kNearLanes / kInt8Panel;
constexpr std::int64_t kPairs = kNearPanels / 2;
// Weights of so many lanes and inputs stay in the second cache while all rows pass.
constexpr std::int64_t kFarLanes = 256;
constexpr std::int64_t kFarInputs = 512;

constexpr std::int64_t far_parts(std::int64_t part_inputs) {
  return part_inputs < kFarInputs ? kFarInputs / part_inputs : 1;
}

// Of a task with parts of so many inputs, n_tiles long.
template <typename Format>
std::size_t integer_scratch_bytes(std::int64_t part_inputs, std::int64_t n_tiles) {
  const std::int64_t n_sums = kSums + quotient_up(kInt8TaskRows, kRows) * kRows * kFarLanes;
  const std::int64_t n_pairs = kFarLanes / kLanes * far_parts(part_inputs);
  return static_cast<std::size_t>(n_sums * 4 + n_pairs * Format::pair_bytes(n_tiles));
}

// Sizes that all of a task shares, and the parts of its scratch.
template <typename Format>
struct Layout {
  std::int64_t n_parts;
  std::int64_t n_far_parts;
  std::int64_t n_tiles;
  std::int64_t n_row_blocks;
  std::int64_t part_bytes;  // of kNearLanes
  bool is_usual;
  std::int32_t* integers;  // [kSums]
  std::int8_t* weight;     // [near lanes][n_far_parts][pairs of panels][pair_bytes]
  float* c;                // [near lanes][row blocks][pairs of panels][kSums]

  explicit Layout(const typename Format::Task& t)
      : n_parts(Format::n_parts(t)),
        n_far_parts(far_parts(Format::part_inputs(t))),
        n_tiles(Format::n_tiles(t)),
        n_row_blocks(quotient_up(t.row_end - t.row_begin, kRows)),
        part_bytes(kPairs * Format::pair_bytes(n_tiles)),
        is_usual(Format::is_usual(t)),
        integers(reinterpret_cast<std::int32_t*>(t.scratch)),
        weight(reinterpret_cast<std::int8_t*>(integers + kSums)),
        c(reinterpret_cast<float*>(weight + kFarLanes / kNearLanes * n_far_parts * part_bytes)) {}
};

// Lanes and parts whose weights stay in the second cache.
struct Far {
  std::int64_t lane;
  std::int64_t lane_end;
  std::int64_t part;
  std::int64_t part_end;
};

// Weights of the next far block, fetched some lines at a time.
struct Prefetch {
  const std::uint8_t* panel;
  std::int64_t panel_stride;
  std::int64_t panel_bytes;
  std::int64_t n_panels;
  std::int64_t at;
  std::int64_t n_at_once;  // bytes
};
Ahead next_lines(Prefetch& p) {
  if (p.n_panels == 0) return {nullptr, nullptr};
  const std::int64_t n = smaller(p.n_at_once, p.panel_bytes - p.at);
  const Ahead out = {p.panel + p.at, p.panel + p.at + n};
  p.at += n;
  if (p.at == p.panel_bytes) {
    p.at = 0;
    p.panel += p.panel_stride;
    --p.n_panels;
  }
  return out;
}

// Between one block and the next.
struct Pipeline {
  Sums before;  // whose integers are in registers
  Prefetch ahead;
};

// The weights of the far block that comes next, for as many calls as this one has blocks.
template <typename Format>
Prefetch following(const typename Format::Task& t, const Layout<Format>& l, const Far& far) {
  const bool is_last = far.part_end == l.n_parts;
  const std::int64_t lane = is_last ? far.lane_end : far.lane;
  if (lane >= t.lane_end) return {};
  const std::int64_t part = is_last ? 0 : far.part_end;
  const std::int64_t begin = part * Format::part_inputs(t);
  const std::int64_t end = smaller(begin + l.n_far_parts * Format::part_inputs(t), Format::n_in(t));
  Prefetch p = {.panel = Format::codes(t, lane, part),
                .panel_stride = t.panel_bytes,
                .panel_bytes = quotient_up((end - begin) * Format::kCodeBytes, 64) * 64,
                .n_panels = quotient_up(smaller(kFarLanes, t.lane_end - lane), kInt8Panel),
                .at = 0,
                .n_at_once = 0};
  const std::int64_t n_blocks =
      quotient_up(far.lane_end - far.lane, kLanes) * l.n_row_blocks * (far.part_end - far.part);
  p.n_at_once = quotient_up(p.n_panels * p.panel_bytes, n_blocks * 64) * 64;
  return p;
}

template <typename Format>
void copy_part(const typename Format::Task& t, const Layout<Format>& l, std::int64_t lane,
               std::int64_t lane_end, std::int64_t part, std::int8_t* to) {
  for (std::int64_t panel = 0; lane + panel * kInt8Panel < lane_end; ++panel) {
    Format::copy_panel(t, lane + panel * kInt8Panel, part,
                       to + panel / 2 * Format::pair_bytes(l.n_tiles), panel % 2);
  }
  finish_stores();
}

// All parts of the far block for kNearRows and kNearLanes. The first rows also copy the weights.
template <typename Format>
void multiply_near(const typename Format::Task& t, const Layout<Format>& l, const Far& far,
                   std::int64_t lane, std::int64_t row, std::int64_t row_end, Pipeline& p) {
  const std::int64_t near = (lane - far.lane) / kNearLanes;
  std::int8_t* weight = l.weight + near * l.n_far_parts * l.part_bytes;
  const std::int64_t lane_end = smaller(lane + kNearLanes, far.lane_end);
  const std::int64_t pair_bytes = Format::pair_bytes(l.n_tiles);
  for (std::int64_t part = far.part; part < far.part_end; ++part, weight += l.part_bytes) {
    if (row == t.row_begin) copy_part<Format>(t, l, lane, lane_end, part, weight);
    for (std::int64_t r = row; r < row_end; r += kRows) {
      const std::byte* x = Format::x(t, part, r);
      const float* x_scales = Format::x_scales(t, part, r);
      float* c = l.c + (near * l.n_row_blocks + (r - t.row_begin) / kRows) * kPairs * kSums;
      for (std::int64_t pair = 0; lane + pair * kLanes < lane_end; ++pair) {
        const std::int8_t* right = weight + pair * pair_bytes;
        const Block block = {
            .x = x, .x_stride = Format::x_stride(t), .weight = right, .n_tiles = l.n_tiles};
        multiply<Format>(block, p.before, next_lines(p.ahead), l.is_usual);
        p.before = {.integers = l.integers,
                    .x_scales = x_scales,
                    .lane_scales =
                        reinterpret_cast<const float*>(right + l.n_tiles * 2 * kRightBytes<Format>),
                    .c = c + pair * kSums,
                    .n_rows = smaller(kRows, row_end - r),
                    .is_first = part == 0};
      }
    }
  }
}

template <typename Format>
void multiply_far(const typename Format::Task& t, const Layout<Format>& l, const Far& far) {
  Pipeline p = {.before = {}, .ahead = following<Format>(t, l, far)};
  p.before.integers = l.integers;
  for (std::int64_t lane = far.lane; lane < far.lane_end; lane += kNearLanes) {
    for (std::int64_t row = t.row_begin; row < t.row_end; row += kNearRows)
      multiply_near<Format>(t, l, far, lane, row, smaller(row + kNearRows, t.row_end), p);
  }
  store_tiles(p.before.integers);
  scale<Format>(p.before);
}

// Some lanes' sums, as Format::finish_lanes takes them: up to one vector.
template <typename Format>
void finish(const typename Format::Task& t, const Layout<Format>& l, const Far& far) {
  for (std::int64_t row = 0; row < t.row_end - t.row_begin; ++row) {
    float* out = t.out + (row + t.row_begin) * t.out_stride - t.first_lane;
    const float* c = l.c + row / kRows * kPairs * kSums + row % kRows / kAmxRows * 2 * kTileSums +
                     row % kAmxRows * kAmxColumns;
    for (std::int64_t lane = far.lane; lane < far.lane_end; lane += kNearLanes) {
      for (std::int64_t panel = 0; panel < kNearPanels; ++panel) {
        const std::int64_t first = lane + panel * kInt8Panel;
        const std::int64_t begin = first > t.lane_begin ? first : t.lane_begin;
        const std::int64_t end = smaller(first + kInt8Panel, far.lane_end);
        if (begin >= end) continue;
        Format::finish_lanes(t, begin, end - begin,
                             c + panel / 2 * kSums + panel % 2 * kTileSums + (begin - first),
                             out + begin);
      }
      c += l.n_row_blocks * kPairs * kSums;
    }
  }
}

// Up to one vector of outputs: what a format has made of its sums, with bias and what was there.
template <typename Task>
LONGHAUL_INLINE void store_outputs(const Task& t, std::int64_t begin, std::int64_t n, Vec v,
                                   float* out) {
  const bool is_whole = n == kWidth;
  const auto part = [&](const float* p) { return is_whole ? load(p) : load_first(p, n); };
  if (t.bias != nullptr) v += part(t.bias + begin - t.first_lane);
  if (t.accumulate) v += part(out);
  is_whole ? store(out, v) : store_first(out, v, n);
}

template <typename Format>
void multiply_integers(const typename Format::Task& t) {
  const AmxRegisters registers({.right_rows = Format::kInputs / kInt8Step, .n_left_sides = 2});
  const Layout<Format> l(t);
  amx_clear_sums();
  for (std::int64_t lane = t.lane_begin / kInt8Panel * kInt8Panel; lane < t.lane_end;
       lane += kFarLanes) {
    Far far = {
        .lane = lane, .lane_end = smaller(lane + kFarLanes, t.lane_end), .part = 0, .part_end = 0};
    for (; far.part < l.n_parts; far.part += l.n_far_parts) {
      far.part_end = smaller(far.part + l.n_far_parts, l.n_parts);
      multiply_far<Format>(t, l, far);
    }
    finish<Format>(t, l, far);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
