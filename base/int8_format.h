// How matrices of int8 weights are cut: what their bytes are, and which inputs share a scale when
// activations are quantised. kernels/int8_weights.h has the layout; planning counts with these.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace longhaul {

// Outputs that lie together: one vector of AVX-512.
inline constexpr std::int64_t kInt8Panel = 16;
// Inputs of an output that lie together: one step of VPDPBUSD.
inline constexpr std::int64_t kInt8Step = 4;
// Neighbouring inputs whose activations share a scale. A rank's slice of inputs begins at a
// multiple of it, so that a token is quantised alike however many ranks share a matrix.
inline constexpr std::int64_t kInt8Group = 128;

// Weights, and one f32 scale for each output, of whole panels and whole steps.
constexpr std::int64_t int8_matrix_bytes(std::int64_t n_out, std::int64_t n_in) {
  const std::int64_t outputs = ceil_div(n_out, kInt8Panel) * kInt8Panel;
  const std::int64_t inputs = ceil_div(n_in, kInt8Step) * kInt8Step;
  return outputs * inputs + outputs * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace longhaul
