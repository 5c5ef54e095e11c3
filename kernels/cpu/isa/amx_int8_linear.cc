// Matrix products of many rows with int8 weights by AMX, on one thread: the bits of
// kernels/cpu/isa/int8_linear.cc, and like it compiled without fused multiply-adds. Weights become
// signed bytes on their way from memory, so that sums need no correction.
#include "base/int8_format.h"
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/amx_int8_block.h"
#include "kernels/cpu/isa/int8_linear.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kStepBytes = kInt8Panel * kInt8Step;  // as the matrix has them
static_assert(kInt8Panel == kAmxColumns && kStepBytes == kAmxRowBytes);
constexpr std::int64_t kTileSteps = kAmxBytes / kInt8Step;

// Floats of so many rows and lanes stay in the first cache while groups of inputs pass.
constexpr std::int64_t kNearRows = 64;
constexpr std::int64_t kNearLanes = 64;
constexpr std::int64_t kNearPanels = kNearLanes / kInt8Panel;
constexpr std::int64_t kPairs = kNearPanels / 2;
// Weights of so many lanes and inputs stay in the second cache while all rows pass.
constexpr std::int64_t kFarLanes = 256;
constexpr std::int64_t kFarInputs = 512;

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t ceil_divided(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t far_groups(std::int64_t group) { return group < kFarInputs ? kFarInputs / group : 1; }

// Sizes that all of a task shares, and the parts of its scratch.
struct Layout {
  std::int64_t n_groups;
  std::int64_t n_far_groups;
  std::int64_t n_tiles;  // along the inputs of a group
  std::int64_t n_row_blocks;
  std::int64_t group_bytes;  // of kNearLanes
  std::int32_t* integers;    // [kSums]
  std::int8_t* weight;       // [near lanes][n_far_groups][pairs of panels][n_tiles][2 tiles]
  float* c;                  // [near lanes][row blocks][pairs of panels][kSums]
};

Layout divide_scratch(const Int8LinearTask& t) {
  Layout l;
  l.n_groups = ceil_divided(t.n_in, t.group);
  l.n_far_groups = far_groups(t.group);
  l.n_tiles = ceil_divided(t.group, kAmxBytes);
  l.n_row_blocks = ceil_divided(t.row_end - t.row_begin, kRows);
  l.group_bytes = l.n_tiles * kNearPanels * kTileBytes;
  l.integers = reinterpret_cast<std::int32_t*>(t.scratch);
  l.weight = reinterpret_cast<std::int8_t*>(l.integers + kSums);
  l.c =
      reinterpret_cast<float*>(l.weight + kFarLanes / kNearLanes * l.n_far_groups * l.group_bytes);
  return l;
}

// One panel's weights of one group as signed bytes, every other tile of `to`. Inputs that the group
// does not have are zero, so that it does not matter what x has there.
void copy_panel(const std::uint8_t* from, std::int64_t n_steps, std::int64_t n_tiles,
                std::int8_t* to) {
  for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
    const std::int64_t left = n_steps - tile * kTileSteps;
    for (std::int64_t step = 0; step < kTileSteps; ++step) {
      Words signed_bytes{};
      if (step < left) {
        signed_bytes = load_words(from + (tile * kTileSteps + step) * kStepBytes) ^ 0x80808080U;
      }
      __builtin_memcpy(to + tile * 2 * kTileBytes + step * kStepBytes, &signed_bytes,
                       sizeof signed_bytes);
    }
  }
}

// Lanes and groups whose weights stay in the second cache.
struct Far {
  std::int64_t lane;
  std::int64_t lane_end;
  std::int64_t group;
  std::int64_t group_end;
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

const std::uint8_t* weight_at(const Int8LinearTask& t, std::int64_t lane, std::int64_t input) {
  return t.weight + lane / kInt8Panel * t.panel_bytes + input / kInt8Step * kStepBytes;
}

void copy_group(const Int8LinearTask& t, const Layout& l, std::int64_t lane, std::int64_t lane_end,
                std::int64_t group, std::int8_t* to) {
  const std::int64_t begin = group * t.group;
  const std::int64_t n_steps = ceil_divided(smaller(t.group, t.n_in - begin), kInt8Step);
  for (std::int64_t panel = 0; lane + panel * kInt8Panel < lane_end; ++panel) {
    copy_panel(weight_at(t, lane + panel * kInt8Panel, begin), n_steps, l.n_tiles,
               to + (panel / 2 * l.n_tiles * 2 + panel % 2) * kTileBytes);
  }
  finish_stores();
}

// The weights of the far block that comes next, for as many calls as this one has blocks.
Prefetch following(const Int8LinearTask& t, const Layout& l, const Far& far) {
  const bool is_last = far.group_end == l.n_groups;
  const std::int64_t lane = is_last ? far.lane_end : far.lane;
  if (lane >= t.lane_end) return {};
  const std::int64_t group = is_last ? 0 : far.group_end;
  const std::int64_t begin = group * t.group;
  const std::int64_t end = smaller(begin + l.n_far_groups * t.group, t.n_in);
  Prefetch p = {.panel = weight_at(t, lane, begin),
                .panel_stride = t.panel_bytes,
                .panel_bytes = ceil_divided(end - begin, kInt8Step) * kStepBytes,
                .n_panels = ceil_divided(smaller(kFarLanes, t.lane_end - lane), kInt8Panel),
                .at = 0,
                .n_at_once = 0};
  const std::int64_t n_blocks =
      ceil_divided(far.lane_end - far.lane, kLanes) * l.n_row_blocks * (far.group_end - far.group);
  p.n_at_once = ceil_divided(p.n_panels * p.panel_bytes, n_blocks * kStepBytes) * kStepBytes;
  return p;
}

// All groups of the far block for kNearRows and kNearLanes. The first rows also copy the weights.
void multiply_near(const Int8LinearTask& t, const Layout& l, const Far& far, std::int64_t lane,
                   std::int64_t row, std::int64_t row_end, Pipeline& p) {
  const std::int64_t near = (lane - far.lane) / kNearLanes;
  std::int8_t* weight = l.weight + near * l.n_far_groups * l.group_bytes;
  const std::int64_t lane_end = smaller(lane + kNearLanes, far.lane_end);
  const bool is_usual = t.group == kUsualTiles * kAmxBytes;
  for (std::int64_t g = far.group; g < far.group_end; ++g, weight += l.group_bytes) {
    if (row == t.row_begin) copy_group(t, l, lane, lane_end, g, weight);
    for (std::int64_t r = row; r < row_end; r += kRows) {
      const std::int64_t at = g * t.x.n_rows + r;
      float* c = l.c + (near * l.n_row_blocks + (r - t.row_begin) / kRows) * kPairs * kSums;
      for (std::int64_t pair = 0; lane + pair * kLanes < lane_end; ++pair) {
        const Block block = {.x = t.x.integers + at * t.group,
                             .x_stride = t.group,
                             .weight = weight + pair * l.n_tiles * 2 * kTileBytes,
                             .n_tiles = l.n_tiles};
        multiply(block, p.before, next_lines(p.ahead), is_usual);
        p.before = {.integers = l.integers,
                    .x_scales = t.x.scales + at,
                    .c = c + pair * kSums,
                    .n_rows = smaller(kRows, row_end - r),
                    .is_first = g == 0};
      }
    }
  }
}

void multiply_far(const Int8LinearTask& t, const Layout& l, const Far& far) {
  Pipeline p = {.before = {}, .ahead = following(t, l, far)};
  p.before.integers = l.integers;
  for (std::int64_t lane = far.lane; lane < far.lane_end; lane += kNearLanes) {
    for (std::int64_t row = t.row_begin; row < t.row_end; row += kNearRows) {
      multiply_near(t, l, far, lane, row, smaller(row + kNearRows, t.row_end), p);
    }
  }
  store_tiles(p.before.integers);
  scale(p.before);
}

// Up to one vector of outputs.
LONGHAUL_INLINE void finish_lanes(const Int8LinearTask& t, std::int64_t begin, std::int64_t n,
                                  const float* c, float* out) {
  const bool whole = n == kWidth;
  const auto part = [&](const float* p) { return whole ? load(p) : load_first(p, n); };
  Vec v = part(c) * part(t.scales + begin);
  if (t.bias != nullptr) v += part(t.bias + begin - t.first_lane);
  if (t.accumulate) v += part(out);
  if (whole) {
    store(out, v);
  } else {
    store_first(out, v, n);
  }
}

void finish(const Int8LinearTask& t, const Layout& l, const Far& far) {
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
        finish_lanes(t, begin, end - begin,
                     c + panel / 2 * kSums + panel % 2 * kTileSums + (begin - first), out + begin);
      }
      c += l.n_row_blocks * kPairs * kSums;
    }
  }
}

}  // namespace

std::size_t amx_int8_scratch_bytes(std::int64_t group) {
  const std::int64_t group_bytes = ceil_divided(group, kAmxBytes) * kAmxBytes * kFarLanes;
  const std::int64_t n_sums = kSums + ceil_divided(kInt8TaskRows, kRows) * kRows * kFarLanes;
  return static_cast<std::size_t>(n_sums * 4 + far_groups(group) * group_bytes);
}

void amx_int8_linear(const Int8LinearTask& t) {
  const AmxRegisters registers;
  const Layout l = divide_scratch(t);
  amx_clear_sums();
  for (std::int64_t lane = t.lane_begin / kInt8Panel * kInt8Panel; lane < t.lane_end;
       lane += kFarLanes) {
    Far far = {.lane = lane,
               .lane_end = smaller(lane + kFarLanes, t.lane_end),
               .group = 0,
               .group_end = 0};
    for (; far.group < l.n_groups; far.group += l.n_far_groups) {
      far.group_end = smaller(far.group + l.n_far_groups, l.n_groups);
      multiply_far(t, l, far);
    }
    finish(t, l, far);
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
