// Rotary position embedding (Su et al. 2021) in the rotate-half form of Hugging Face: dimension i
// is paired with i + rotary_dim / 2. Angles are computed once per step in double precision, so
// positions of many millions keep their phase; then applied to Q and K of every layer. Local.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

struct RopeAnglesArgs {
  std::span<const std::int64_t> positions;      // [n_tokens]
  std::span<const double> inverse_frequencies;  // [rotary_dim / 2]
  double attention_scale = 1.0;                 // multiplies cos and sin (YaRN)
  TensorView<float, 2> cos;                     // [n_tokens, rotary_dim / 2]
  TensorView<float, 2> sin;                     // [n_tokens, rotary_dim / 2]
};
void rope_angles(StreamRef stream, const RopeAnglesArgs& args);

struct RopeArgs {
  TensorView<float, 3> x;  // [n_tokens, n_heads, head_dim], rotated in place; dims from rotary_dim
                           // on stay as they are
  TensorView<const float, 2> cos;  // [n_tokens, rotary_dim / 2]
  TensorView<const float, 2> sin;
};
void rope(StreamRef stream, const RopeArgs& args);

}  // namespace longhaul
