#include "tests/unit/worker/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tests/unit/model/safetensors_bytes.h"
#include "worker/weights.h"

namespace longhaul::test {
namespace {

constexpr const char* kInt8Config =
    R"(, "quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized",
"ignore": ["lm_head"], "kv_cache_scheme": null, "config_groups": {"group_0": {"targets": ["Linear"],
"weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false},
"input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token",
"dynamic": true}}}})";

constexpr const char* kFp8Config =
    R"(, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
"weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]})";

std::string config_text(const ModelFiles& files) {
  const ModelSpec& spec = files.spec;
  std::string windows;
  for (const std::int64_t window : spec.attention_window) {
    if (window != ModelSpec::kNoWindow) {
      windows = fmt::format(R"(, "use_sliding_window": true, "sliding_window": {})", window);
    }
  }
  if (!windows.empty()) {
    std::vector<std::string_view> types;
    for (const std::int64_t window : spec.attention_window) {
      types.push_back(window == ModelSpec::kNoWindow ? R"("full_attention")"
                                                     : R"("sliding_attention")");
    }
    windows += fmt::format(R"(, "layer_types": [{}])", fmt::join(types, ", "));
  }
  const std::string_view softmax =
      spec.sink_logits == SinkLogits::kLearned ? R"(, "softmax_type": "learnable")"
      : spec.sink_logits == SinkLogits::kZero  ? R"(, "softmax_type": "off-by-one")"
                                               : "";
  std::string merging;
  if (spec.token_merging) {
    merging = fmt::format(R"(, "dmc_window_size": {}, "dmc_init_val": {})",
                          spec.token_merging->window, spec.token_merging->init_val);
  }
  return fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
"max_position_embeddings": {}, "rms_norm_eps": {}, "rope_theta": {}, "attention_bias": {},
"mlp_bias": {}, "tie_word_embeddings": {}, "hidden_act": "silu"{}{}{}{}}})",
      spec.model_type, spec.vocab_size, spec.d_model, spec.d_ff, spec.n_layers, spec.n_heads,
      spec.n_kv_heads, spec.head_dim, spec.max_seq_len, spec.norm_eps, spec.rope_theta,
      spec.qkv_bias, spec.mlp_bias, spec.tied_embeddings, windows, softmax, merging,
      files.dtype == DType::kI8       ? kInt8Config
      : files.dtype == DType::kF8E4m3 ? kFp8Config
                                      : "");
}

// Collects tensors and makes one safetensors file of them.
class Writer {
 public:
  explicit Writer(const ModelFiles& files) : files_(files) {}

  void add(const std::string& name, std::span<const float> values,
           const std::vector<std::int64_t>& shape) {
    if (values.empty() || name == files_.left_out) return;
    const std::size_t begin = data_.size();
    for (const float value : values) add_value(value);
    add_entry(name, dtype_name(), shape, begin);
  }
  void add(const std::string& name, const WeightView& w) {
    if (files_.dtype == DType::kI8 && name.find("layers") != std::string::npos) {
      return add_quantised(name, w);
    }
    if (files_.dtype == DType::kF8E4m3 && name.find("layers") != std::string::npos) {
      return add_fp8(name, w);
    }
    add(name, {static_cast<const float*>(w.data), static_cast<std::size_t>(w.n_out * w.n_in)},
        {w.n_out, w.n_in});
  }
  void add(const std::string& name, std::span<const float> values) {
    add(name, values, {static_cast<std::int64_t>(values.size())});
  }
  std::string file() const {
    std::string header = fmt::format("{{{}}}", fmt::join(entries_, ", "));
    header.append((8 - header.size() % 8) % 8 + files_.n_header_spaces, ' ');
    return safetensors_bytes(header, data_);
  }

 private:
  void add_entry(const std::string& name, std::string_view dtype,
                 const std::vector<std::int64_t>& shape, std::size_t begin) {
    entries_.push_back(
        fmt::format(R"("{}": {{"dtype": "{}", "shape": [{}], "data_offsets": [{}, {}]}})", name,
                    dtype, fmt::join(shape, ", "), begin, data_.size()));
  }
  // A multiple of the output's largest magnitude / 127, which stands in name_scale.
  void add_quantised(const std::string& name, const WeightView& w) {
    if (name == files_.left_out) return;
    std::vector<float> scales;
    const std::size_t begin = data_.size();
    for (std::int64_t o = 0; o < w.n_out; ++o) {
      const std::span row(static_cast<const float*>(w.data) + o * w.n_in,
                          static_cast<std::size_t>(w.n_in));
      float largest = 0;
      for (const float value : row) largest = std::max(largest, std::abs(value));
      for (const float value : row) {
        add_bytes(static_cast<std::int8_t>(std::nearbyint(value * (127.0F / largest))));
      }
      scales.push_back(largest / 127.0F);
    }
    add_entry(name, "I8", {w.n_out, w.n_in}, begin);
    add(name + "_scale", scales, {w.n_out, 1});
  }
  // Codes for the values / (a 448th of the largest of each block), which stands in name_scale_inv.
  void add_fp8(const std::string& name, const WeightView& w) {
    const auto* values = static_cast<const float*>(w.data);
    const std::int64_t n_columns = ceil_div(w.n_in, 128);
    std::vector<float> scales(static_cast<std::size_t>(ceil_div(w.n_out, 128) * n_columns));
    const auto scale_of = [&](std::int64_t i) -> float& {
      return scales[static_cast<std::size_t>(i / w.n_in / 128 * n_columns + i % w.n_in / 128)];
    };
    for (std::int64_t i = 0; i < w.n_out * w.n_in; ++i)
      scale_of(i) = std::max(scale_of(i), std::abs(values[i]) / 448.0F);
    if (name != files_.left_out) {
      const std::size_t begin = data_.size();
      for (std::int64_t i = 0; i < w.n_out * w.n_in; ++i)
        add_bytes(to_e4m3(values[i] / scale_of(i)));
      add_entry(name, "F8_E4M3", {w.n_out, w.n_in}, begin);
    }
    if (name + "_scale_inv" == files_.left_out) return;
    const std::size_t begin = data_.size();
    for (const float scale : scales) add_bytes(scale);
    add_entry(name + "_scale_inv", "F32", {ceil_div(w.n_out, 128), n_columns}, begin);
  }
  template <typename T>
  void add_bytes(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void add_value(float value) {
    switch (files_.dtype) {
      case DType::kF32:
      case DType::kI8:
        return add_bytes(value);
      case DType::kF16:
        return add_bytes(to_f16(value));
      case DType::kBf16:
      case DType::kF8E4m3:
        return add_bytes(to_bf16(value));
      case DType::kF64:
        return add_bytes(static_cast<double>(value));
      case DType::kI4:
        break;
    }
    throw Error(ErrorCode::kInternal, "write_model: dtype");
  }
  std::string_view dtype_name() const {
    switch (files_.dtype) {
      case DType::kF32:
      case DType::kI8:
        return "F32";
      case DType::kF16:
        return "F16";
      case DType::kBf16:
      case DType::kF8E4m3:
        return "BF16";
      case DType::kF64:
        return "F64";
      case DType::kI4:
        break;
    }
    return "?";
  }

  const ModelFiles& files_;
  std::vector<std::string> entries_;
  std::string data_;
};

}  // namespace

void write_model(const std::filesystem::path& folder, const ModelFiles& files) {
  const Weights weights = Weights::synthetic(files.spec, DType::kF32, files.seed);
  Writer writer(files);
  writer.add("model.embed_tokens.weight", weights.embedding());
  writer.add("model.norm.weight", weights.final_norm());
  if (!files.spec.tied_embeddings) writer.add("lm_head.weight", weights.lm_head());
  for (std::int64_t number = 0; number < files.spec.n_layers; ++number) {
    const LayerWeights& w = weights.layer({number});
    const std::string prefix = fmt::format("model.layers.{}.", number);
    writer.add(prefix + "input_layernorm.weight", w.attention_norm);
    writer.add(prefix + "self_attn.q_proj.weight", w.q);
    writer.add(prefix + "self_attn.k_proj.weight", w.k);
    writer.add(prefix + "self_attn.v_proj.weight", w.v);
    writer.add(prefix + "self_attn.o_proj.weight", w.o);
    writer.add(prefix + "self_attn.q_proj.bias", w.q_bias);
    writer.add(prefix + "self_attn.k_proj.bias", w.k_bias);
    writer.add(prefix + "self_attn.v_proj.bias", w.v_bias);
    writer.add(prefix + "self_attn.o_proj.bias", w.o_bias);
    if (files.spec.sink_logits == SinkLogits::kLearned)
      writer.add(prefix + "self_attn.sinks", w.sink_logits);
    writer.add(prefix + "self_attn.q_norm.weight", w.q_norm);
    writer.add(prefix + "self_attn.k_norm.weight", w.k_norm);
    writer.add(prefix + "post_attention_layernorm.weight", w.ffn_norm);
    writer.add(prefix + "mlp.gate_proj.weight", w.gate);
    writer.add(prefix + "mlp.up_proj.weight", w.up);
    writer.add(prefix + "mlp.down_proj.weight", w.down);
    writer.add(prefix + "mlp.gate_proj.bias", w.gate_bias);
    writer.add(prefix + "mlp.up_proj.bias", w.up_bias);
    writer.add(prefix + "mlp.down_proj.bias", w.down_bias);
  }
  for (const AddedTensor& tensor : files.added)
    writer.add(tensor.name, tensor.values, tensor.shape);
  replace_file(folder / "config.json", config_text(files));
  replace_file(folder / "model.safetensors", writer.file());
}

}  // namespace longhaul::test
