// The partial result of attention over some of the keys, and its algebra. For scores s_j of the
// keys seen so far:
//   m about max_j s_j    l = sum_j exp(s_j - m)        o = sum_j exp(s_j - m) v_j   (not
//   normalised)
// m is a reference that keeps exponentials within floats: the largest score, or one that the
// largest exceeds by less than 28 (kernels/cpu/isa/amx_softmax.h). What the state says is
// independent of it. Empty is (-inf, 0, 0). merge is associative and commutative with that
// identity, so keys may be split over tiles, blocks and ranks in any way (Milakov & Gimelshein
// 2018; Rabe & Staats 2021). Natural logarithm; lse = m + log l.
#pragma once
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/tensor.h"

namespace longhaul {

struct SoftmaxStateView {
  TensorView<float, 3> o;  // [n_tokens, n_heads, head_dim]
  TensorView<float, 2> m;  // [n_tokens, n_heads]
  TensorView<float, 2> l;  // [n_tokens, n_heads]
  SoftmaxStateView tokens(Extent extent) const {
    return {o.slice(0, extent), m.slice(0, extent), l.slice(0, extent)};
  }
  SoftmaxStateView heads(Extent extent) const {
    return {o.slice(1, extent), m.slice(1, extent), l.slice(1, extent)};
  }
};

// Owner of a state in host memory.
struct SoftmaxState {
  Tensor<float, 3> o;
  Tensor<float, 2> m;
  Tensor<float, 2> l;
  SoftmaxState() = default;
  SoftmaxState(std::int64_t n_tokens, std::int64_t n_heads, std::int64_t head_dim)
      : o({n_tokens, n_heads, head_dim}), m({n_tokens, n_heads}), l({n_tokens, n_heads}) {}
  SoftmaxStateView view() { return {o.view(), m.view(), l.view()}; }
};

// Makes every state the identity.
void clear(StreamRef stream, const SoftmaxStateView& state);

// into = merge(into, from); equal shapes.
void merge(StreamRef stream, const SoftmaxStateView& into, const SoftmaxStateView& from);

// Makes m and l of a state those of all parts, of which others have the values: merges it with what
// the parts but `own` are together, in their order, with values of zero. So when every owner of a
// part has finished its state, the outputs add up to the whole. An empty part is (-inf, 0).
struct MergeScalesArgs {
  SoftmaxStateView state;        // the part `own`
  TensorView<const float, 3> m;  // [n_parts, n_tokens, n_heads]
  TensorView<const float, 3> l;  // the same, and the same strides
  std::int64_t own = 0;
};
void merge_scales(StreamRef stream, const MergeScalesArgs& args);

// out = o / l for all tokens and heads: call once, after every partial state is merged. A query
// that saw no key gives zeros. `sink_logits` [n_heads], when not empty, adds one more key of that
// logit and value zero to each head's denominator (gpt-oss; it is not scaled by sm_scale); all
// zeros are softmax-off-by-one (StreamingLLM section 3.3 "zero sink").
struct FinishAttentionArgs {
  SoftmaxStateView state;
  std::span<const float> sink_logits = {};
  TensorView<float, 3> out;  // [n_tokens, n_heads, head_dim]; may be the memory of state.o
};
void finish_attention(StreamRef stream, const FinishAttentionArgs& args);

}  // namespace longhaul
