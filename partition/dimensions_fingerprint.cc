#include "partition/dimensions_fingerprint.h"

#include <fmt/format.h>

#include "partition/fnv1a.h"

namespace longhaul {
namespace {

std::string merging_in_words(const ModelSpec& spec) {
  if (!spec.token_merging) return "";
  return fmt::format(" merging={},{}", spec.token_merging->window, spec.token_merging->init_val);
}

}  // namespace

std::string dimensions_fingerprint(const ModelSpec& spec) {
  const RopeScaling& rope = spec.rope_scaling;
  return fnv1a_hex(fmt::format(
      "{} vocab={} d_model={} d_ff={} layers={} heads={} kv_heads={} head_dim={} eps={} theta={} "
      "rope={},{},{},{},{},{},{},{},{},{},{} bias={}{}{} qk_norm={} tied={} window={}{}{}",
      spec.model_type, spec.vocab_size, spec.d_model, spec.d_ff, spec.n_layers, spec.n_heads,
      spec.n_kv_heads, spec.head_dim, spec.norm_eps, spec.rope_theta, static_cast<int>(rope.kind),
      rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.original_max_position,
      rope.beta_fast, rope.beta_slow, rope.attention_factor.value_or(-1), rope.mscale.value_or(-1),
      rope.mscale_all_dim.value_or(-1), rope.truncate, spec.qkv_bias, spec.attention_output_bias,
      spec.mlp_bias, spec.qk_norm, spec.tied_embeddings, fmt::join(spec.attention_window, ","),
      spec.sink_logits == SinkLogits::kLearned ? " sink_logits"
      : spec.sink_logits == SinkLogits::kZero  ? " softmax_off_by_one"
                                               : "",
      merging_in_words(spec)));
}

}  // namespace longhaul
