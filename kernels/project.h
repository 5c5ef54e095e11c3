// Products of a layer's weights with rows that are made for them: of several weights with the same
// rows, and with what comes right before them, a norm, SwiGLU, or the end of attention. The
// arithmetic is that of these operators and of linear, one after the other (kernels/rms_norm.h,
// swiglu.h, softmax_state.h, linear.h): on CPUs it is just that. On GPUs the rows are made in the
// type that the products take, in one launch, and the products are one where they can be. Local.
#pragma once
#include <span>
#include <variant>

#include "base/device/device.h"
#include "kernels/linear.h"
#include "kernels/softmax_state.h"
#include "kernels/tensor.h"

namespace longhaul {

// What the rows are: rms_norm(x);
struct NormedInput {
  TensorView<const float, 2> x;   // [n_rows, n_in]
  std::span<const float> weight;  // [n_in]
  float eps = 1e-5F;
};
// silu(gate) * up;
struct ActivatedInput {
  TensorView<const float, 2> gate;  // [n_rows, n_in]
  TensorView<const float, 2> up;
};
// the outputs of all heads, as finish_attention gives them;
struct AttendedInput {
  SoftmaxStateView state;  // [n_rows, n_heads(, head_dim)], n_heads * head_dim = n_in
  std::span<const float> sink_logits = {};
};
// Or what is in the memory of the rows already.
struct StoredInput {};

// Of weights of this type GPUs take rows and outs that are strided.
constexpr bool may_lie_by_side(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || is_integer(dtype);
}

// One product of the rows: as LinearArgs have it, but for `out`, whose rows may be strided where
// products allow that.
struct ProjectedPart {
  WeightView weight;  // [n_out, n_in]
  std::span<const float> bias = {};
  TensorView<float, 2> out;  // [n_rows, n_out]
  LinearOutput output = LinearOutput::kOverwrite;
};

// Parts are one product on a GPU where weights of floats lie one behind the other in memory, their
// biases too, and their outs are neighbouring columns of one matrix; and, of integers, for few
// rows. Parts of floats that follow each other are one launch, too, where they are of one shape
// without biases, and their weights, and outs, at equal distances in memory.
struct ProjectArgs {
  std::variant<NormedInput, ActivatedInput, AttendedInput, StoredInput> input;
  // [n_rows, n_in]: memory where the rows may be put, contiguous as `out` has to be. What is in it
  // afterwards is not defined. May be the memory of gate or state.o.
  TensorView<float, 2> rows;
  std::span<const ProjectedPart> parts;  // at least one; weights of one type and group
  SumOrder order = SumOrder::kFastest;
};

void project(StreamRef stream, const ProjectArgs& args);

}  // namespace longhaul
