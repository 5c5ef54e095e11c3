// The gradient of a product with weights with respect to its input: d_x = d_out W, or d_x += d_out
// W, where the product was out = x W^T (kernels/linear.h). Weights get no gradients: what is
// trained here are gates of heads, never weights. Local.
//
// On CPUs the weights are turned into scratch memory of the calling thread, which stays as large as
// the largest matrix, and multiplied by linear(): so this is as fast as linear() but for reading
// and writing the matrix once. GPUs multiply by the matrix as it is. With bf16 weights d_out is
// rounded to bf16 as linear() rounds its input.
#pragma once
#include "kernels/linear.h"

namespace longhaul {

struct LinearBackwardArgs {
  TensorView<const float, 2> d_out;  // [n_tokens, n_out], contiguous
  WeightView weight;                 // [n_out, n_in], of f32 or bf16
  TensorView<float, 2> d_x;          // [n_tokens, n_in], contiguous
  LinearOutput output = LinearOutput::kOverwrite;
};

// Throws kInvalidArgument for shapes that do not fit, kUnsupported for weights of integers.
void linear_backward(StreamRef stream, const LinearBackwardArgs& args);

}  // namespace longhaul
