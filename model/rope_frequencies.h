// Inverse frequencies of RoPE under the scalings of Hugging Face transformers
// (modeling_rope_utils): default, linear, llama3, YaRN (Peng et al. 2023). Pure.
#pragma once
#include <vector>

#include "model/model_spec.h"

namespace longhaul {

struct RopeFrequencies {
  std::vector<double> inverse_frequencies;  // [head_dim / 2]
  double attention_scale = 1.0;             // multiplies cos and sin
};

RopeFrequencies rope_frequencies(const ModelSpec& spec);

}  // namespace longhaul
