// Matrix products with int4 weights on one thread. See kernels/cpu/isa/kernels.h; the layout of
// weights is in kernels/int4_weights.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/int4_format.h"
#include "kernels/cpu/isa/int8_linear.h"

namespace longhaul::cpu {

// How inputs are cut: into groups of activations, and these where the weights' runs of kInt4Run
// end. The first run may have begun before the first input, where ranks share the inputs.
struct Int4Cut {
  std::int64_t n_in;
  std::int64_t group;        // of activations; a multiple of kInt4Line
  std::int64_t first_input;  // in the weights' first run; a multiple of kInt4Line

  std::int64_t most_runs() const {  // of a group
    return (group + kInt4Run - kInt4Line + kInt4Run - 1) / kInt4Run;
  }
};

// What quantise_int4_x leaves of rows of x. Group after group, each with all rows.
struct Int4X {
  std::byte* integers = nullptr;  // [n_groups, n_rows, group] signed bytes, zeros behind the last
  float* scales = nullptr;        // [n_groups, n_rows]
  std::int32_t* sums = nullptr;   // [n_groups, most_runs, n_rows] 8 times the sum of a run's
  std::int64_t n_rows = 0;
};

// As Int8XTask.
struct Int4XTask {
  const float* x;  // [n_rows, n_in]
  Int4Cut cut;
  Int4X out;
  std::int64_t row_begin;
  std::int64_t row_end;
};

// Outputs of lanes [lane_begin, lane_end) for any number of rows: for each run of inputs the exact
// sum of products, times the lane's scale of it, times the row's scale of its group; the runs in
// order. So a row's result depends on nothing but the row and the lane's weights.
struct Int4LinearTask {
  Int4X x;
  Int4Cut cut;
  const std::uint8_t* codes;    // the panel of lane 0
  std::int64_t panel_bytes;     // from panel to panel
  const std::uint16_t* scales;  // f16 [panels, scales of a panel, kInt8Panel]
  std::int64_t panel_scales;    // from panel to panel
  int runs_of_scale;            // that share a scale
  std::int64_t first_lane;      // output 0
  const float* bias;            // [n_out] may be null
  float* out;                   // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t lane_begin;  // >= first_lane
  std::int64_t lane_end;
  float* scratch;  // [its rows, kInt8TileLanes], aligned to 64 bytes
};

}  // namespace longhaul::cpu
