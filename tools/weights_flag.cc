#include "tools/weights_flag.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string_view>

namespace longhaul {

void add_weights_flag(CLI::App& app, std::string& weights, const std::string& group) {
  app.add_option(
         "--weights", weights,
         "Type of weights in memory; auto: the files'. int8 halves bf16's memory and reads, "
         "and quantises what enters a product (the embedding stays bf16)")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str()
      ->group(group);
}

std::optional<DType> asked_weights(const std::string& weights) {
  if (weights == "f32") return DType::kF32;
  if (weights == "bf16") return DType::kBf16;
  if (weights == "int8") return DType::kI8;
  return std::nullopt;
}

DType weights_in_memory(const std::string& weights, const ModelFolder& folder) {
  if (const auto asked = asked_weights(weights)) return *asked;
  const bool has_files = std::filesystem::exists(folder.path() / "model.safetensors") ||
                         std::filesystem::exists(folder.path() / "model.safetensors.index.json");
  // The files' types may differ from what config.json says.
  constexpr std::string_view kSomeMatrix = "model.layers.0.mlp.down_proj.weight";
  DType dtype = folder.config().spec.weight_dtype;
  if (has_files && folder.has_tensor(kSomeMatrix)) dtype = folder.tensor(kSomeMatrix).dtype;
  if (dtype == DType::kI8) return dtype;
  return dtype == DType::kBf16 ? DType::kBf16 : DType::kF32;  // others are converted to f32
}

}  // namespace longhaul
