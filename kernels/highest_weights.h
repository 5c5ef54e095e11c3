// The highest softmax weight that each key gets from any of some queries: what scores of heads are
// made of (tools/identify/head_scores.h). Local.
#pragma once
#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// highest[key] = max(highest[key], exp(scale x scores[row][key] - m[row]) / l[row]) over all rows:
// m and l of the row's softmax (kernels/softmax_state.h).
struct HighestWeightsArgs {
  TensorView<const float, 2> scores;  // [n_rows, n_keys]
  float scale = 1.0F;
  TensorView<const float, 2> m;  // [n_rows, 1]
  TensorView<const float, 2> l;  // [n_rows, 1]
  TensorView<float, 1> highest;  // [n], at most n_keys; the others are not looked at
};
void highest_weights(StreamRef stream, const HighestWeightsArgs& args);

}  // namespace longhaul
