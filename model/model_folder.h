// A model on disk: a Hugging Face folder, or org/name[@revision] in the local hub cache. Opens
// lazily: the configuration first, weight files when their tensors are asked for, the tokenizer
// apart (model/tokenizer). Never downloads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf_config.h"
#include "model/safetensors.h"

namespace longhaul {

// Resolves what the user gave for --model: an existing folder as it is, else org/name[@revision] in
// the hub cache `hub_cache` (models--org--name/{refs,snapshots}). Throws kInvalidArgument saying
// what was tried.
std::filesystem::path find_model_folder(std::string_view model,
                                        const std::filesystem::path& hub_cache);

class ModelFolder {
 public:
  explicit ModelFolder(const std::filesystem::path&
                           folder);  // reads config.json and, if there, generation_config.json

  const std::filesystem::path& path() const { return folder_; }
  const HfConfig& config() const { return config_; }
  const GenerationConfig& generation() const { return generation_; }
  // Tokens that end an answer: those of config.json and of generation_config.json, ascending.
  std::vector<std::int32_t> end_tokens() const;
  std::filesystem::path tokenizer_path() const { return folder_ / "tokenizer.json"; }

  // Weights, from model.safetensors or the shards that model.safetensors.index.json names (names
  // with '/' or '..' are refused; every shard must exist, every tensor be found where the index
  // says). Views stay valid while this object or a copy of it lives. Any thread may call these.
  bool has_tensor(std::string_view name) const;
  TensorBytes tensor(std::string_view name) const;
  bool has_weights() const;  // whether the file or the index of them is there
  // Of the layers' matrices, which may differ from what config.json says; nothing without weights.
  std::optional<DType> matrix_type() const;
  // Every tensor that is in these files, also one that the index leaves out, with its file.
  std::map<std::string, std::filesystem::path> tensor_files() const;
  std::size_t weight_bytes() const;  // of all tensors, from headers alone

 private:
  struct Shards;
  const Shards& shards() const;  // opens on first use
  std::filesystem::path folder_;
  HfConfig config_;
  GenerationConfig generation_;
  mutable std::shared_ptr<Shards> shards_;
};

}  // namespace longhaul
