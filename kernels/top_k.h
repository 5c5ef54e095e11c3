// The largest logits of each row, and the row's log-sum-exp: all that greedy decoding, sampling
// with top-k and log-probabilities need. Local.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

struct TopKArgs {
  TensorView<const float, 2> logits;  // [n_rows, vocab_size]
  TensorView<std::int32_t, 2>
      ids;  // [n_rows, k], by descending logit, equal logits by ascending id; 1 <= k <= vocab_size
  TensorView<float, 2> values;        // [n_rows, k]
  std::span<float> log_sum_exp = {};  // [n_rows] or empty
};

// On a GPU the logits are its memory and all results are host memory: the call waits for them.
// argmax is k = 1. NaN logits throw kCorruptData naming the row: a model that computes NaN must not
// look as if it answered.
void top_k(StreamRef stream, const TopKArgs& args);

}  // namespace longhaul
