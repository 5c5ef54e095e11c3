// Looks up rows of the embedding table as float32. Local.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

struct EmbeddingArgs {
  WeightView table;                      // [vocab_size, d_model]
  std::span<const std::int32_t> tokens;  // [n_tokens], each in [0, vocab_size): checked
  TensorView<float, 2> out;              // [n_tokens, d_model]
};

void embedding(StreamRef stream, const EmbeddingArgs& args);

}  // namespace longhaul
