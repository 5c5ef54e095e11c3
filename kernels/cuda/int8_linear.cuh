// What the kernels of linear with int8 weights share. Weights are the CPU's panels, byte for byte
// (kernels/int8_weights.h), for they suit a GPU as they are: the 32 steps of a panel that make a
// group of 128 inputs are 2 KiB without gaps, so a warp's 16-byte reads are whole sectors; 16 bytes
// hold 4 outputs of a step, and a word (4 inputs of an output) is one register of the left side of
// mma.m16n8k32. Rows and columns of a product are numbered such that a lane's words are the
// neighbours that it reads at once.
//
// Results have the CPU's bits: activations are quantised by the same operations, sums of a group
// are exact, and what follows is rounded operation by operation in the CPU's order.
#pragma once
#include "base/int8_format.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/project.h"

namespace longhaul::cuda {

constexpr int kPanelOutputs = static_cast<int>(kInt8Panel);
constexpr int kStepBytes = static_cast<int>(kInt8Panel * kInt8Step);
constexpr int kGroupSteps = static_cast<int>(kInt8Group / kInt8Step);
constexpr int kGroupBytes = kGroupSteps * kStepBytes;  // of a panel

// Of a row's group of activations. The sums of its products with weights + 128 begin at `start`,
// which leaves the sum with the weights; of groups of kInt8Group in the lowest bits of the float
// 1.5 2^23: sums of 128 products stay below 2^22, so the difference to that float is exact.
struct Int8Range {
  float scale;
  std::int32_t start;
};
constexpr std::int32_t kSumBits = 0x4b400000;
__device__ __forceinline__ float float_of_sum(std::int32_t bits) {
  return __int_as_float(bits) - 12582912.0F;
}

// The rows of products, quantised. Where groups are whole parts of kInt8Group inputs, products are
// made part by part: sums of a group's parts are integers, which add up exactly, and are scaled
// when the group ends.
struct Int8Rows {
  std::uint32_t* codes;  // [n_rows, n_groups, group / 4] words of 4 integers of [-127, 127]
  Int8Range* ranges;     // [n_groups, range_rows]
  std::int64_t n_rows;
  std::int64_t range_rows;  // n_rows, filled up to a multiple of 64
  std::int64_t n_in;
  std::int64_t n_steps;
  std::int64_t group;
  std::int64_t n_groups;
  // Of groups that are whole parts, else 0: the parts of each, and of all of a row.
  std::int64_t parts_of_group;
  std::int64_t n_parts;
  bool operator==(const Int8Rows&) const = default;

  LONGHAUL_HOST_DEVICE bool has_parts() const { return n_parts != 0; }
};

// What they are multiplied by.
struct Int8Weights {
  const std::uint8_t* weight;  // the panel of lane 0, aligned to 16 bytes
  std::int64_t panel_bytes;
  std::int64_t n_panels;
  const float* scales;      // of each lane
  std::int64_t first_lane;  // output 0
  std::int64_t n_out;
  const float* bias;  // [n_out] may be null
  float* out;         // [n_rows, n_out]
  std::int64_t out_stride;
  bool accumulates;
  bool operator==(const Int8Weights&) const = default;
};

struct Int8Work : Int8Rows, Int8Weights {
  bool operator==(const Int8Work&) const = default;
};

// Several weights for the same rows, in one launch.
constexpr int kMostInt8Weights = 3;
struct Int8Works {
  Int8Rows rows;
  Int8Weights weights[kMostInt8Weights];
  int n_weights;
  bool operator==(const Int8Works&) const = default;
};

// Where the codes of a step of kInt8Group lie among the words of their part: those that lane t of
// the products' right sides needs, steps t, t + 4, t + 8 ..., are neighbours.
LONGHAUL_HOST_DEVICE constexpr int word_of_step(int step) { return step % 4 * 8 + step / 4; }

// The CPU's last operations on the sums of rows for a lane.
struct LaneOutput {
  float* out = nullptr;  // of row 0; null: there is no such output
  float scale = 0.0F;
  float bias = 0.0F;

  __device__ __forceinline__ LaneOutput(const Int8Work& work, std::int64_t lane) {
    const std::int64_t output = lane - work.first_lane;
    if (output < 0 || output >= work.n_out) return;
    out = work.out + output;
    scale = work.scales[lane];
    if (work.bias != nullptr) bias = work.bias[output];
  }
  __device__ __forceinline__ void store(const Int8Work& work, std::int64_t row, float sum) const {
    if (out == nullptr) return;
    float* to = out + row * work.out_stride;
    float value = rounded_product(sum, scale);
    if (work.bias != nullptr) value = rounded_sum(value, bias);
    *to = work.accumulates ? rounded_sum(value, *to) : value;
  }
};
__device__ __forceinline__ void store_output(const Int8Work& work, std::int64_t row,
                                             std::int64_t lane, float sum) {
  LaneOutput(work, lane).store(work, row, sum);
}

// Groups of whole parts only: few rows, at the speed of memory; and any number.
constexpr std::int64_t kInt8FewRows = 32;
void int8_few_rows(Stream& stream, const Int8Works& works);
void int8_tiles(Stream& stream, const Int8Work& work);

// Of int8_linear.cu. Room for the rows of products with such a weight, in the stream's scratch
// memory;
Int8Rows int8_rows(Stream& stream, std::int64_t n_rows, const WeightView& weight);
// their products, once they are there;
void int8_products(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts);
// and linear() with int8 weights.
void int8_linear(Stream& stream, const LinearArgs& args);

}  // namespace longhaul::cuda
