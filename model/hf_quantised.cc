#include "model/hf_quantised.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/fp8_format.h"

namespace longhaul {
namespace {

bool is_text(const JsonField& object, std::string_view key, std::string_view value) {
  const auto field = object.find(key);
  const auto* text = field ? std::get_if<std::string>(&field->json().value()) : nullptr;
  return text != nullptr && *text == value;
}

bool is_true(const JsonField& object, std::string_view key) {
  const auto field = object.find(key);
  const auto* value = field ? std::get_if<bool>(&field->json().value()) : nullptr;
  return value != nullptr && *value;
}

// "8 bits of this type (int or float), symmetric" in the words of compressed-tensors.
bool is_symmetric_8_bits(const JsonField& scheme, std::string_view type) {
  const auto bits = scheme.find("num_bits");
  const auto* n_bits = bits ? std::get_if<std::int64_t>(&bits->json().value()) : nullptr;
  return n_bits != nullptr && *n_bits == 8 && is_text(scheme, "type", type) &&
         is_true(scheme, "symmetric");
}

// Groups of layers in compressed-tensors' config; none where something else than weights and
// activations is quantised, or a weight's zeros are left out.
std::vector<JsonField> groups_of(const JsonField& config, std::string_view format) {
  if (!is_text(config, "quant_method", "compressed-tensors") ||
      !is_text(config, "format", format)) {
    return {};
  }
  const auto sparsity = config.find("sparsity_config");
  const bool is_dense = !is_set(sparsity) || is_text(*sparsity, "format", "dense");
  if (!is_dense || is_set(config.find("kv_cache_scheme")) ||
      is_set(config.find("transform_config")))
    return {};
  const auto groups = config.find("config_groups");
  if (!groups || !groups->json().is_object()) return {};
  std::vector<JsonField> out;
  for (const auto& [name, json] : std::get<JsonObject>(groups->json().value()))
    out.push_back(groups->at(name));
  return out;
}

// int8 with a scale for each output, activations not quantised, or per token as they come.
bool is_int8_per_output(const JsonField& config) {
  const std::vector<JsonField> groups = groups_of(config, "int-quantized");
  return !groups.empty() && std::all_of(groups.begin(), groups.end(), [](const JsonField& group) {
    const auto weights = group.find("weights");
    const auto activations = group.find("input_activations");
    return weights && is_symmetric_8_bits(*weights, "int") &&
           is_text(*weights, "strategy", "channel") && !is_true(*weights, "dynamic") &&
           (!activations ||
            (is_symmetric_8_bits(*activations, "int") &&
             is_text(*activations, "strategy", "token") && is_true(*activations, "dynamic")));
  });
}

// [outputs, inputs] of a block, as vectors can multiply them.
Fp8Files read_block(const ConfigFields& config, const JsonField& sizes) {
  const auto is_size = [&](std::size_t i) {
    const auto* n = std::get_if<std::int64_t>(&sizes.at(i).json().value());
    return n != nullptr && *n > 0 && *n <= kMaxPositions;
  };
  const auto* list = std::get_if<JsonArray>(&sizes.json().value());
  if (list == nullptr || list->size() != 2 || !is_size(0) || !is_size(1))
    config.unsupported(sizes.path(),
                       "a block is a list of two positive integers, such as [128, 128]");
  const Fp8Files files = {std::get<std::int64_t>(sizes.at(0).json().value()),
                          std::get<std::int64_t>(sizes.at(1).json().value())};
  if (files.block_in % kFp8Chunk != 0) {
    config.unsupported(sizes.path(), fmt::format("blocks of {} inputs; only multiples of {} are "
                                                 "supported",
                                                 files.block_in, kFp8Chunk));
  }
  return files;
}

std::optional<Fp8Files> read_fp8(const ConfigFields& config, const JsonField& field) {
  if (!is_text(field, "quant_method", "fp8")) return std::nullopt;
  if (is_set(field.find("fmt")) && !is_text(field, "fmt", "e4m3")) return std::nullopt;
  const auto block = field.find("weight_block_size");
  return block ? read_block(config, *block) : Fp8Files{};
}

std::optional<Fp8Files> read_float_quantised(const ConfigFields& config, const JsonField& field) {
  std::optional<Fp8Files> found;
  for (const JsonField& group : groups_of(field, "float-quantized")) {
    const auto weights = group.find("weights");
    if (!weights || !is_symmetric_8_bits(*weights, "float") || is_true(*weights, "dynamic"))
      return std::nullopt;
    Fp8Files form;
    if (is_text(*weights, "strategy", "channel")) {
      form.block_out = 1;
    } else if (is_text(*weights, "strategy", "block") && weights->find("block_structure")) {
      form = read_block(config, weights->at("block_structure"));
    } else if (!is_text(*weights, "strategy", "tensor")) {
      return std::nullopt;
    }
    if (found && *found != form) return std::nullopt;
    found = form;
  }
  return found;
}

std::string text_of(const JsonField& object, std::string_view key) {
  const auto field = object.find(key);
  const auto* text = field ? std::get_if<std::string>(&field->json().value()) : nullptr;
  return text == nullptr ? "" : *text;
}

// "AWQ with 4 bits", "FP8", "bitsandbytes": what made the files.
std::string name_of_method(const JsonField& field) {
  if (!field.json().is_object()) return shown(field.json());
  std::string method = text_of(field, "quant_method");
  if (method.empty()) return "quantised in a way that quant_method does not name";
  if (const std::string format = text_of(field, "format"); !format.empty())
    method += fmt::format(" ({})", format);
  for (const std::string_view known : {"awq", "gptq", "fp8", "hqq", "eetq"}) {
    if (method == known) {
      std::transform(method.begin(), method.end(), method.begin(),
                     [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    }
  }
  for (const std::string_view key : {"bits", "w_bit", "nbits"}) {
    const auto bits = field.find(key);
    const auto* n = bits ? std::get_if<std::int64_t>(&bits->json().value()) : nullptr;
    if (n != nullptr) return fmt::format("{} with {} bits", method, *n);
  }
  return method;
}

}  // namespace

std::optional<Fp8Files> read_quantised_form(const ConfigFields& config) {
  const auto field = config.find("quantization_config");
  if (!is_set(field)) return std::nullopt;
  if (field->json().is_object()) {
    if (is_int8_per_output(*field)) return std::nullopt;
    if (const auto fp8 = read_fp8(config, *field)) return fp8;
    if (const auto fp8 = read_float_quantised(config, *field)) return fp8;
  }
  config.unsupported(
      "quantization_config",
      fmt::format("the weights are {}; of quantised weight files these are read: fp8 (e4m3) with a "
                  "scale for each block, matrix or output, and compressed-tensors' int8 with a "
                  "scale for each output and activations quantised per token. Give the model in "
                  "its original precision (Longhaul quantises on its own: --weights int8)",
                  name_of_method(*field)));
}

}  // namespace longhaul
