#include "model/tensor_names.h"

#include <algorithm>
#include <initializer_list>

namespace longhaul {

bool has_layer_tensor(const ModelSpec& spec, std::string_view name) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is_one_of({"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}))
    return spec.qkv_bias;
  if (name == "self_attn.o_proj.bias") return spec.attention_output_bias;
  if (is_one_of({"self_attn.q_norm.weight", "self_attn.k_norm.weight"})) return spec.qk_norm;
  if (name == "self_attn.sinks") return spec.sink_logits == SinkLogits::kLearned;
  if (is_one_of({"mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"}))
    return spec.mlp_bias;
  return is_one_of({"input_layernorm.weight", "post_attention_layernorm.weight",
                    "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                    "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                    "mlp.down_proj.weight"});
}

}  // namespace longhaul
