#include "model/unread_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "model/tensor_names.h"

namespace longhaul {
namespace {

struct PlaceInLayers {
  std::int64_t layer = 0;
  std::string_view name;  // what follows "model.layers.N."
};

std::optional<PlaceInLayers> place_in_layers(std::string_view tensor) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!tensor.starts_with(kLayers)) return std::nullopt;
  tensor.remove_prefix(kLayers.size());
  PlaceInLayers place;
  const auto [end, error] =
      std::from_chars(tensor.data(), tensor.data() + tensor.size(), place.layer);
  const auto n_digits = static_cast<std::size_t>(end - tensor.data());
  if (error != std::errc() || n_digits == tensor.size() || tensor[n_digits] != '.')
    return std::nullopt;
  place.name = tensor.substr(n_digits + 1);
  return place;
}

bool ends_in_one_of(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// Positions and masks that old releases of transformers stored, and what quantised files say of
// activations and caches, which are computed as floats here.
bool is_known_to_change_nothing(std::string_view tensor) {
  return ends_in_one_of(
      tensor, {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached",
               ".attn.bias", ".masked_bias", ".input_scale", ".input_zero_point", ".output_scale",
               ".output_zero_point", ".activation_scale", ".q_scale", ".k_scale", ".v_scale"});
}

// Modules that stand beside the language model, with layers of their own.
bool is_beside_the_model(std::string_view tensor) {
  constexpr std::array<std::string_view, 9> kModules = {"mtp.",
                                                        "model.mtp",
                                                        "visual.",
                                                        "model.visual.",
                                                        "vision_tower.",
                                                        "model.vision_tower.",
                                                        "vision_model.",
                                                        "multi_modal_projector.",
                                                        "model.multi_modal_projector."};
  return std::any_of(kModules.begin(), kModules.end(),
                     [&](std::string_view module) { return tensor.starts_with(module); });
}

class Judge {
 public:
  explicit Judge(const ModelFolder& folder) : folder_(folder), spec_(folder.config().spec) {}

  bool is_read_or_harmless(std::string_view tensor) const {
    return is_read(tensor) || is_read_scale(tensor) || is_known_to_change_nothing(tensor) ||
           is_second_head(tensor) || is_of_zeros(tensor);
  }

  bool changes_results(std::string_view tensor) const {
    if (is_beside_the_model(tensor)) return false;
    return place_in_layers(tensor) || tensor.ends_with(".bias") ||
           tensor.find("norm") != std::string_view::npos;
  }

  // Why config.json does not have it read, as the rest of a sentence.
  std::string reason(std::string_view tensor) const {
    const auto place = place_in_layers(tensor);
    const std::string_view name = place ? place->name : tensor;
    if (place && (place->layer < 0 || place->layer >= spec_.n_layers)) {
      return fmt::format("num_hidden_layers {} leaves this layer out", spec_.n_layers);
    }
    if (place && name == "self_attn.sinks") {
      return "learned sink logits need \"softmax_type\": \"learnable\"";
    }
    if (place && ends_in_one_of(name, {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})) {
      return fmt::format("model_type {} does not normalise queries and keys, qwen3 does",
                         spec_.model_type);
    }
    if (place && name.ends_with(".bias")) return reason_for_bias(name);
    if (ends_in_one_of(name, {"_scale", "_scale_inv", "_zero_point", ".qweight", ".qzeros",
                              ".scales", ".g_idx", ".weight_packed", ".weight_shape"})) {
      return "quantization_config does not say that there is such a tensor beside these weights";
    }
    return fmt::format("model_type {} has no such tensor", spec_.model_type);
  }

 private:
  bool is_read(std::string_view tensor) const {
    if (const auto place = place_in_layers(tensor)) {
      const bool is_there = place->layer >= 0 && place->layer < spec_.n_layers;
      return is_there && has_layer_tensor(spec_, place->name);
    }
    return tensor == kEmbeddingTensor || tensor == kFinalNormTensor ||
           (tensor == kHeadTensor && !spec_.tied_embeddings);
  }

  // Scales are read beside the matrices of integers and of fp8 that are read.
  bool is_read_scale(std::string_view tensor) const {
    for (const std::string_view suffix : {"_scale_inv", "_scale"}) {
      if (!tensor.ends_with(suffix)) continue;
      const std::string_view matrix = tensor.substr(0, tensor.size() - suffix.size());
      if (!matrix.ends_with(".weight") || !is_read(matrix)) return false;
      if (!folder_.has_tensor(matrix)) return true;  // that it is missing is said elsewhere
      const DType dtype = folder_.tensor(matrix).dtype;
      if (dtype == DType::kI8) return suffix == "_scale";
      return dtype == DType::kF8E4m3 &&
             (suffix == "_scale_inv" || !folder_.has_tensor(fmt::format("{}_scale_inv", matrix)));
    }
    return false;
  }

  // Of tied embeddings, with its scales; whether it is another matrix is asked elsewhere.
  bool is_second_head(std::string_view tensor) const {
    return spec_.tied_embeddings && tensor.starts_with(kHeadTensor);
  }

  // Biases that are not added, and zeros that are not subtracted, since they are 0.
  bool is_of_zeros(std::string_view tensor) const {
    if (!ends_in_one_of(tensor, {".bias", ".weight_zero_point"}) || !folder_.has_tensor(tensor))
      return false;
    const auto place = place_in_layers(tensor);
    if (place && place->layer >= spec_.n_layers) return false;
    const TensorBytes zeros = folder_.tensor(tensor);
    return std::all_of(zeros.bytes.begin(), zeros.bytes.end(),
                       [](std::byte byte) { return byte == std::byte{0}; });
  }

  std::string reason_for_bias(std::string_view name) const {
    const bool is_llama = spec_.model_type == "llama";
    if (name.starts_with("self_attn.") && (is_llama || spec_.model_type == "qwen3"))
      return "\"attention_bias\" is not true";
    if (name.starts_with("mlp.") && is_llama) return "\"mlp_bias\" is not true";
    return fmt::format("model_type {} has no such bias", spec_.model_type);
  }

  const ModelFolder& folder_;
  const ModelSpec& spec_;
};

}  // namespace

std::vector<std::string> unread_tensors(const ModelFolder& folder) {
  const Judge judge(folder);
  std::vector<std::string> unread;
  for (const auto& [tensor, file] : folder.tensor_files()) {
    if (judge.is_read_or_harmless(tensor)) continue;
    if (judge.changes_results(tensor)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: nobody would read tensor {}: by config.json, {}. Without it "
                              "answers are those of another model: correct config.json, or give "
                              "the weights that belong to it",
                              file.string(), tensor, judge.reason(tensor)));
    }
    unread.push_back(tensor);
  }
  return unread;
}

bool has_another_head_than_the_embedding(const ModelFolder& folder) {
  const bool are_both_there = folder.has_tensor(kHeadTensor) && folder.has_tensor(kEmbeddingTensor);
  if (!folder.config().spec.tied_embeddings || !are_both_there) return false;
  const TensorBytes head = folder.tensor(kHeadTensor);
  const TensorBytes embedding = folder.tensor(kEmbeddingTensor);
  return head.dtype != embedding.dtype || head.shape != embedding.shape ||
         std::memcmp(head.bytes.data(), embedding.bytes.data(), head.bytes.size()) != 0;
}

}  // namespace longhaul
