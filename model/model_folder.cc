#include "model/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "model/weight_index.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxIndexBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxRefBytes = 4096;
constexpr std::string_view kSingleFile = "model.safetensors";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

[[noreturn]] void refuse(std::string_view model, const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("model '{}': {}", model, reason));
}

// One part of a repository's name as the hub allows it: letters, digits, '-', '_', '.', and no
// "..".
bool is_plain_name(std::string_view part) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !part.empty() && part[0] != '.' && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), allowed);
}

// "org/name" -> "models--org--name"; nothing when it is no repository's name.
std::optional<std::string> repository_folder(std::string_view name) {
  const auto slash = name.find('/');
  if (slash == std::string_view::npos) {
    return is_plain_name(name) ? std::optional(fmt::format("models--{}", name)) : std::nullopt;
  }
  const std::string_view organisation = name.substr(0, slash);
  const std::string_view rest = name.substr(slash + 1);
  if (!is_plain_name(organisation) || !is_plain_name(rest)) return std::nullopt;
  return fmt::format("models--{}--{}", organisation, rest);
}

// A revision may have parts, such as refs/pr/1.
bool is_plain_revision(std::string_view revision) {
  while (true) {
    const auto slash = revision.find('/');
    if (!is_plain_name(revision.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    revision.remove_prefix(slash + 1);
  }
}

// The snapshot that `revision` (a branch, a tag or a commit) names in the repository's cache.
std::optional<fs::path> find_snapshot(std::string_view model, const fs::path& repository,
                                      std::string_view revision) {
  const fs::path reference = repository / "refs" / revision;
  std::error_code ignored;
  if (fs::is_regular_file(reference, ignored)) {
    std::string commit = read_file(reference, kMaxRefBytes);
    while (!commit.empty() &&
           (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) {
      commit.pop_back();
    }
    if (!is_plain_name(commit)) {
      refuse(model, fmt::format("{} does not hold the name of a commit; download the model again",
                                reference.string()));
    }
    const fs::path snapshot = repository / "snapshots" / commit;
    if (is_folder(snapshot)) return snapshot;
    refuse(model, fmt::format("{} names commit {}, but {} is not there; download the model again",
                              reference.string(), commit, snapshot.string()));
  }
  const fs::path snapshot = repository / "snapshots" / revision;
  return is_folder(snapshot) ? std::optional(snapshot) : std::nullopt;
}

HfConfig read_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (!is_folder(folder)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("model folder {} is not there", folder.string()));
  }
  if (!is_there(path)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no config.json; give the folder of a Hugging Face model",
                            folder.string()));
  }
  return parse_hf_config(read_file(path, kMaxConfigBytes), path.string());
}

GenerationConfig read_generation_config(const fs::path& folder, const HfConfig& config) {
  const fs::path path = folder / "generation_config.json";
  if (!is_there(path)) return {};
  GenerationConfig result =
      parse_generation_config(read_file(path, kMaxConfigBytes), path.string());
  for (const std::int32_t id : result.eos_token_ids) {
    if (id >= config.spec.vocab_size) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: eos_token_id: {} is outside the vocabulary of {} tokens",
                              path.string(), id, config.spec.vocab_size));
    }
  }
  return result;
}

}  // namespace

fs::path find_model_folder(std::string_view model, const fs::path& hub_cache) {
  if (model.empty()) refuse(model, "empty; give a folder or org/name of a downloaded model");
  if (is_folder(model)) return fs::path(model);
  if (is_there(model)) {
    const bool is_gguf = fs::path(model).extension() == ".gguf";
    refuse(model,
           fmt::format("is a {}; give the folder that holds config.json and the .safetensors "
                       "files of the {}",
                       is_gguf ? "GGUF file, which Longhaul does not read" : "file",
                       is_gguf ? "original model" : "model"));
  }
  const auto at = model.find('@');
  const std::string_view name = model.substr(0, at);
  const std::string_view revision = at == std::string_view::npos ? "main" : model.substr(at + 1);
  const auto folder = repository_folder(name);
  if (!folder || !is_plain_revision(revision)) {
    refuse(model,
           "there is no such folder, and it does not read as org/name or "
           "org/name@revision of a downloaded model");
  }
  const fs::path repository = hub_cache / *folder;
  if (const auto snapshot = find_snapshot(model, repository, revision)) return *snapshot;
  if (!is_folder(repository) && name.find('/') == std::string_view::npos) {
    refuse(model,
           "there is no such folder, and models of the hub are named org/name, such as "
           "meta-llama/Llama-3.1-8B");
  }
  if (!is_folder(repository)) {
    refuse(model,
           fmt::format("there is no such folder, and the hub cache has no {}; Longhaul "
                       "never downloads: fetch it with `hf download {}`, or set HF_HUB_CACHE "
                       "to where it is",
                       repository.string(), name));
  }
  refuse(model, fmt::format("the hub cache has the model but not revision {}: neither {} nor {} is "
                            "there; fetch it with `hf download {} --revision {}`",
                            revision, (repository / "refs" / revision).string(),
                            (repository / "snapshots" / revision).string(), name, revision));
}

// The opened weight files. Any thread may come first; the mutex guards opening only.
struct ModelFolder::Shards {
  std::mutex mutex;
  bool is_open = false;
  std::vector<SafetensorsFile> files;
  std::map<std::string, std::size_t, std::less<>> file_of;  // tensor -> index into files
  std::size_t bytes = 0;

  void open(const fs::path& folder);
  void open_indexed(const fs::path& folder, const WeightIndex& index, const std::string& source);
  void add_bytes(const SafetensorsFile& file);
};

void ModelFolder::Shards::add_bytes(const SafetensorsFile& file) {
  for (const auto& [name, entry] : file.header().entries) bytes += entry.end - entry.begin;
}

void ModelFolder::Shards::open(const fs::path& folder) {
  files.clear();  // what an earlier, failed try left
  file_of.clear();
  bytes = 0;
  if (is_there(folder / kSingleFile)) {
    files.emplace_back(folder / kSingleFile);
    for (std::string& name : files[0].names()) file_of.emplace(std::move(name), 0);
    return add_bytes(files[0]);
  }
  const fs::path index = folder / kWeightIndexFile;
  if (!is_there(index)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no weights: neither {} nor {} is there. Other formats "
                            "(pytorch_model.bin, GGUF) are not read; convert the model to "
                            "safetensors",
                            folder.string(), kSingleFile, kWeightIndexFile));
  }
  open_indexed(folder, parse_weight_index(read_file(index, kMaxIndexBytes), index.string()),
               index.string());
}

void ModelFolder::Shards::open_indexed(const fs::path& folder, const WeightIndex& index,
                                       const std::string& source) {
  std::map<std::string, std::size_t, std::less<>> opened;
  for (const auto& [tensor, file] : index) {
    if (opened.contains(file)) continue;
    if (!is_there(folder / file)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: weight_map.{}: {} is not there; download the model again",
                              source, tensor, (folder / file).string()));
    }
    opened.emplace(file, files.size());
    files.emplace_back(folder / file);
    add_bytes(files.back());
  }
  for (const auto& [tensor, file] : index) {
    const std::size_t named = opened.at(file);
    if (!files[named].contains(tensor)) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{}: weight_map.{}: {} has no such tensor",
                                                       source, tensor, (folder / file).string()));
    }
    file_of.emplace(tensor, named);
  }
  for (const auto& [file, i] : opened) {
    for (const std::string& tensor : files[i].names()) {
      const auto named = file_of.find(tensor);
      if (named != file_of.end() && named->second != i) {
        throw Error(ErrorCode::kCorruptData,
                    fmt::format("{}: weight_map.{}: the tensor is in {} and in {} too", source,
                                tensor, index.find(tensor)->second, file));
      }
    }
  }
}

ModelFolder::ModelFolder(const fs::path& folder)
    : folder_(folder),
      config_(read_config(folder)),
      generation_(read_generation_config(folder, config_)),
      shards_(std::make_shared<Shards>()) {}

std::vector<std::int32_t> ModelFolder::end_tokens() const {
  std::set<std::int32_t> ids(config_.eos_token_ids.begin(), config_.eos_token_ids.end());
  ids.insert(generation_.eos_token_ids.begin(), generation_.eos_token_ids.end());
  return {ids.begin(), ids.end()};
}

const ModelFolder::Shards& ModelFolder::shards() const {
  const std::scoped_lock lock(shards_->mutex);
  if (!shards_->is_open) {
    shards_->open(folder_);
    shards_->is_open = true;
  }
  return *shards_;
}

bool ModelFolder::has_tensor(std::string_view name) const {
  const Shards& opened = shards();
  return opened.file_of.find(name) != opened.file_of.end();
}

TensorBytes ModelFolder::tensor(std::string_view name) const {
  const Shards& opened = shards();
  const auto found = opened.file_of.find(name);
  if (found == opened.file_of.end()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: tensor {} is missing; do the weights belong to this config.json?",
                            folder_.string(), name));
  }
  return opened.files[found->second].tensor(name);
}

bool ModelFolder::has_weights() const {
  return is_there(folder_ / kSingleFile) || is_there(folder_ / kWeightIndexFile);
}

std::optional<DType> ModelFolder::matrix_type() const {
  constexpr std::string_view kSomeMatrix = "model.layers.0.mlp.down_proj.weight";
  if (!has_weights() || !has_tensor(kSomeMatrix)) return std::nullopt;
  return tensor(kSomeMatrix).dtype;
}

std::map<std::string, fs::path> ModelFolder::tensor_files() const {
  std::map<std::string, fs::path> files;
  for (const SafetensorsFile& file : shards().files) {
    for (std::string& tensor : file.names()) files.emplace(std::move(tensor), file.path());
  }
  return files;
}

std::size_t ModelFolder::weight_bytes() const { return shards().bytes; }

}  // namespace longhaul
