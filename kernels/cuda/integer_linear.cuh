// What the kernels of linear with int8 and int4 weights share. Weights are the CPU's panels, byte
// for byte (kernels/int8_weights.h, int4_weights.h), for they suit a GPU as they are: what 128
// inputs need of a panel is 1 or 2 KiB without gaps, so a warp's 16-byte reads are whole sectors;
// 16 bytes hold 4 outputs of a line, and a word of int8 (4 inputs of an output) is one register of
// the left side of mma.m16n8k32, one of int4 (8 inputs) becomes two. Rows and columns of a product
// are numbered such that a lane's words are the neighbours that it reads at once.
//
// Results have the CPU's bits (but for the sign of a zero): activations are quantised by the same
// operations, sums of a group or run are exact, and what follows is rounded operation by operation
// in the CPU's order.
#pragma once
#include "base/int4_format.h"
#include "base/int8_format.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/project.h"

namespace longhaul::cuda {

constexpr int kPanelOutputs = static_cast<int>(kInt8Panel);
// A line of a panel: a 32-bit word of each of its outputs; of int8 a step of inputs.
constexpr int kLineBytes = kPanelOutputs * static_cast<int>(sizeof(std::uint32_t));
// The parts in which products are made, of this many inputs.
constexpr int kPartInputs = static_cast<int>(kInt8Group);
constexpr int kPartSteps = kPartInputs / static_cast<int>(kInt8Step);
constexpr int kPartRuns = kPartInputs / static_cast<int>(kInt4Run);
constexpr int kRunLines = static_cast<int>(kInt4Run / kInt4Line);

// An integer below 2^22 is the lowest bits of the float 1.5 2^23, whose difference to that float is
// the integer: sums of products begin at these bits.
constexpr std::int32_t kSumBits = 0x4b400000;
constexpr float kSumFloat = 12582912.0F;
__device__ __forceinline__ float float_of_sum(std::int32_t bits) {
  return __int_as_float(bits) - kSumFloat;
}

// Of a row's group of activations. The sums of its products with int8 weights + 128 begin at
// `start`, which leaves the sum with the weights; of groups of kInt8Group behind kSumBits.
struct Int8Range {
  float scale;
  std::int32_t start;
};

// The rows of products, quantised. Where groups are whole parts, products are made part by part:
// of int8 weights, sums of a group's parts are integers, which add up exactly, and are scaled when
// the group ends; of int4 each run is scaled.
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
  bool interleaves;  // the words of a part lie as word_of_step says
  bool operator==(const Int8Rows&) const = default;

  LONGHAUL_HOST_DEVICE bool has_parts() const { return n_parts != 0; }
};

// What they are multiplied by, and where the results go.
struct PanelProduct {
  const std::uint8_t* weight;  // the panel of lane 0, aligned to 16 bytes
  std::int64_t panel_bytes;
  std::int64_t n_panels;
  std::int64_t first_lane;  // output 0
  std::int64_t n_out;
  const float* bias;  // [n_out] may be null
  float* out;         // [n_rows, n_out]
  std::int64_t out_stride;
  bool accumulates;
  bool operator==(const PanelProduct&) const = default;
};
struct Int8Weights : PanelProduct {
  const float* scales;  // of each lane
  bool operator==(const Int8Weights&) const = default;
};
// Codes of [0, 15] stand for weights of scale * (code - 8). `weight` is where the run of the first
// input is.
struct Int4Weights : PanelProduct {
  const std::uint16_t* scales;  // f16 [panels, panel_scales / kPanelOutputs, kPanelOutputs]
  std::int64_t panel_scales;    // from panel to panel
  int first_run;                // of those that share its scale: where `weight` is
  int runs_of_scale;
  int first_input;  // in that run: input 0, a multiple of kInt4Line
  bool operator==(const Int4Weights&) const = default;

  LONGHAUL_HOST_DEVICE const std::uint16_t* scales_of(std::int64_t panel, int run) const {
    return scales + panel * panel_scales + (first_run + run) / runs_of_scale * kPanelOutputs;
  }
};

struct Int8Work : Int8Rows, Int8Weights {
  bool operator==(const Int8Work&) const = default;
};
struct Int4Work : Int8Rows, Int4Weights {
  bool operator==(const Int4Work&) const = default;
};

// Several weights for the same rows, in one launch.
constexpr int kMostWeightsAtOnce = 3;
template <typename Weights>
struct Works {
  Int8Rows rows;
  Weights weights[kMostWeightsAtOnce];
  int n_weights;
  bool operator==(const Works&) const = default;

  // Thread blocks for all of them, each with two panels of one.
  std::int64_t n_blocks() const {
    std::int64_t n = 0;
    for (int i = 0; i < n_weights; ++i) n += n_pairs(weights[i]);
    return n;
  }
  // The weights that thread block `pair` has, which becomes the number of its two panels in them.
  __device__ __forceinline__ Weights find(std::int64_t& pair) const {
    Weights found = weights[0];
#pragma unroll
    for (int i = 1; i < kMostWeightsAtOnce; ++i) {
      const std::int64_t n_before = n_pairs(weights[i - 1]);
      if (i >= n_weights || pair < n_before) break;
      pair -= n_before;
      found = weights[i];
    }
    return found;
  }

 private:
  LONGHAUL_HOST_DEVICE static std::int64_t n_pairs(const PanelProduct& of) {
    return (of.n_panels + 1) / 2;
  }
};

// Beside int8 weights, where the codes of a step lie among the words of their part: those that lane
// t of the products' right sides needs, steps t, t + 4, t + 8 ..., are neighbours.
LONGHAUL_HOST_DEVICE constexpr int word_of_step(int step) { return step % 4 * 8 + step / 4; }

// The CPU's last operations on the sums of rows for a lane.
struct LaneOutput {
  float* out = nullptr;  // of row 0; null: there is no such output
  float scale = 1.0F;
  float bias = 0.0F;

  // `scales`: of each lane, or null where sums are scaled.
  __device__ __forceinline__ LaneOutput(const PanelProduct& product, const float* scales,
                                        std::int64_t lane) {
    const std::int64_t output = lane - product.first_lane;
    if (output < 0 || output >= product.n_out) return;
    out = product.out + output;
    if (scales != nullptr) scale = scales[lane];
    if (product.bias != nullptr) bias = product.bias[output];
  }
  __device__ __forceinline__ LaneOutput(const Int8Weights& weights, std::int64_t lane)
      : LaneOutput(weights, weights.scales, lane) {}
  __device__ __forceinline__ LaneOutput(const Int4Weights& weights, std::int64_t lane)
      : LaneOutput(weights, nullptr, lane) {}

  __device__ __forceinline__ void store(const PanelProduct& product, std::int64_t row,
                                        float sum) const {
    if (out == nullptr) return;
    float* to = out + row * product.out_stride;
    float value = rounded_product(sum, scale);
    if (product.bias != nullptr) value = rounded_sum(value, bias);
    *to = product.accumulates ? rounded_sum(value, *to) : value;
  }
};

// --- int4 ---------------------------------------------------------------------------------------

// The codes of a word as 16 times the integers that they stand for, in signed bytes: of inputs 0 to
// 3, and of inputs 4 to 7.
__device__ __forceinline__ std::uint32_t low_integers(std::uint32_t word) {
  return (word << 4U & 0xf0f0f0f0U) ^ 0x80808080U;
}
__device__ __forceinline__ std::uint32_t high_integers(std::uint32_t word) {
  return (word & 0xf0f0f0f0U) ^ 0x80808080U;
}

// The scale of an output's run, for sums of such products, which begin at kSumBits: a run of the
// largest ones stays below 2^20. The difference to kSumFloat, times the scale, is one operation
// that rounds once, for kSumFloat times an f16 is a float.
struct RunScale {
  float factor;
  float minus;

  RunScale() = default;
  __device__ __forceinline__ explicit RunScale(std::uint16_t f16)
      : factor(float_of_f16(f16) * 0.0625F), minus(-kSumFloat * factor) {}
  __device__ __forceinline__ float times(std::int32_t sum_bits) const {
    return fmaf(__int_as_float(sum_bits), factor, minus);
  }
};

// --- linear -------------------------------------------------------------------------------------

// Groups of whole parts only: few rows, at the speed of memory; and any number.
constexpr std::int64_t kFewIntegerRows = 32;
void int8_few_rows(Stream& stream, const Works<Int8Weights>& works);
void int4_few_rows(Stream& stream, const Works<Int4Weights>& works);
void int8_tiles(Stream& stream, const Int8Work& work);
void int4_tiles(Stream& stream, const Int4Work& work);

// Of integer_linear.cu. Room for the rows of products with such a weight, in the stream's scratch
// memory;
Int8Rows integer_rows(Stream& stream, std::int64_t n_rows, const WeightView& weight);
// their products, once they are there, whose weights are of one type and cut alike;
void integer_products(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts);
// and linear() with weights of integers.
void integer_linear(Stream& stream, const LinearArgs& args);

}  // namespace longhaul::cuda
