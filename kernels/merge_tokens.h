// Dynamic Memory Compression (DMC; Nawrot et al. 2024, arXiv 2403.09636, section 3.1) as its
// published code computes it (NVIDIA/Megatron-LM, branch dmc, megatron/contrib/dmc): the last
// element of a KV head's key says whether the token begins a slot of the cache or merges into the
// newest, that of the queries how much it weighs there. Both are read before RoPE, and are no part
// of keys and queries: they count as zero in every product.
//
//   merges_t = k_t[last] - init_val > 0, and t is not the text's first token
//   weight_t = sigmoid(q_t[last] + init_val) + eps        q: the mean over the KV head's group
//   k'_t, v'_t = the means of k and v, by weight, over the tokens of t's slot up to t, of these at
//                most the `window` last
//
// Whatever came before them, the slot holds (k', v') of the newest of its tokens, with k' rotated
// to that token's position. So a query sees the slots of tokens before its own one's, and (k', v')
// of its own token:
//
//   tokens    0    1    2    3    4         merges: 1, 2, 4
//   slots     {0   1    2}   {3   4}
//   query 1 sees k'_1        query 3 sees k'_2 k'_3        query 4 sees k'_2 k'_4
//
// The published kernel adds to running sums and takes away what leaves the window; here sums are
// made anew for each token, in double precision and in the order of positions, so they depend on
// neither chunks nor ranks. A product of two floats is exact in double precision, so GPUs and CPUs
// make the same bits of the same tokens. Local.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

// Consecutive tokens of one sequence, before RoPE.
struct RawRows {
  TensorView<const float, 3> k;        // [n, n_kv_heads, head_dim]
  TensorView<const float, 3> v;        // [n, n_kv_heads, head_dim]
  TensorView<const float, 2> weights;  // [n, n_kv_heads]; strided as the caller likes

  std::int64_t n() const { return k.dim(0); }
};

// Whether a token at this position merges, by the last element of its key.
constexpr bool merges_into_slot(float last_of_key, double init_val, std::int64_t position) {
  return position > 0 && last_of_key - static_cast<float>(init_val) > 0.0F;
}

// Which tokens merge. On GPUs the call waits for the stream's work.
struct MergeDecisionsArgs {
  double init_val = 5.0;
  TensorView<const float, 3> k;             // [n, n_kv_heads, head_dim], before RoPE
  std::span<const std::int64_t> positions;  // [n]
  std::span<std::uint8_t> merges;           // [n, n_kv_heads], host memory: 1 or 0
};
void merge_decisions(StreamRef stream, const MergeDecisionsArgs& args);

// Of bf16, as the published inference code has it.
inline constexpr double kMergeWeightEps = 0.0078125;

// How much tokens weigh where they merge.
struct MergeWeightsArgs {
  double init_val = 5.0;
  TensorView<const float, 3> q;  // [n, n_heads, head_dim], before RoPE
  TensorView<float, 2> weights;  // [n, n_kv_heads]; strided as the caller likes
};
void merge_weights(StreamRef stream, const MergeWeightsArgs& args);

// New tokens of one sequence.
struct MergeTokensItem {
  std::int64_t first_position = 0;
  RawRows before = {};                 // right before them: window - 1 tokens or more, or all that
                                       // there are
  TensorView<float, 3> k;              // [n, n_kv_heads, head_dim], on GPUs a token's heads side by
  TensorView<float, 3> v;              // side; become k' and v', with the last element of k' zero
  TensorView<const float, 2> weights;  // [n, n_kv_heads]
};
struct MergeTokensArgs {
  std::int64_t window = 12;  // tokens
  double init_val = 5.0;
  std::span<const MergeTokensItem> items;  // of as many KV heads and dimensions
};
void merge_tokens(StreamRef stream, const MergeTokensArgs& args);

// The last element of every row of x [n, n_heads, head_dim] becomes zero: before RoPE and after it.
void zero_last_elements(StreamRef stream, const TensorView<float, 3>& x);

}  // namespace longhaul
