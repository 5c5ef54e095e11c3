// Matrix products with int8 weights on one thread. See kernels/cpu/isa/kernels.h; the layout of
// weights is in kernels/int8_weights.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

// Lanes of weights that one step of int8_linear works on; tasks best begin at multiples of it.
inline constexpr std::int64_t kInt8TileLanes = 64;
// The most rows of a task: so many that its sums leave room for weights in the second cache.
inline constexpr std::int64_t kInt8TaskRows = 576;
// AMX multiplies whole tiles: it reads so many rows behind the last one of x and so many bytes
// behind those, whatever is there.
inline constexpr std::int64_t kAmxInt8MoreRows = 31;
inline constexpr std::int64_t kAmxInt8MoreBytes = 63;

// What quantise_int8_x leaves of rows of x. Group after group, each with all rows, so that the rows
// that are multiplied together lie together.
struct Int8X {
  std::byte* integers = nullptr;  // [n_groups, n_rows, int8_x_bytes(group)]
  float* scales = nullptr;        // [n_groups, n_rows]
  std::int32_t* sums = nullptr;   // [n_groups, n_rows] 128 times the sum of the integers
  std::int64_t n_rows = 0;        // from group to group
};

// Rows of x to integers of [-127, 127]: of each group of neighbouring inputs, round(x / scale) with
// scale = max|x| / 127. A group with an infinity or NaN has the scale NaN.
struct Int8XTask {
  const float* x;  // [n_rows, n_in]
  std::int64_t n_in;
  std::int64_t group;  // a multiple of 4
  Int8X out;
  std::int64_t row_begin;
  std::int64_t row_end;
};

// Outputs of lanes [lane_begin, lane_end) for any number of rows: for each group the exact sum of
// products, times the row's scale of it; the groups in order; times the lane's scale. So a row's
// result depends on nothing but the row and the lane's weights.
struct Int8LinearTask {
  Int8X x;
  std::int64_t n_in;
  std::int64_t group;
  const std::uint8_t* weight;  // the panel of lane 0
  std::int64_t panel_bytes;    // from panel to panel
  const float* scales;         // of each lane
  std::int64_t first_lane;     // output 0
  const float* bias;           // [n_out] may be null
  float* out;                  // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t lane_begin;  // >= first_lane
  std::int64_t lane_end;
  float* scratch;  // [its rows, kInt8TileLanes], or as AMX needs it; aligned to 64 bytes
};

}  // namespace longhaul::cpu
