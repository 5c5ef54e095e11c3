#include "coordinator/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/sha256.h"

namespace longhaul {
namespace {

constexpr std::size_t kSamples = 16;
constexpr std::size_t kSampleBytes = std::size_t{64} << 10;

std::string sampled_sha256(std::string_view text) {
  if (text.size() <= kSamples * kSampleBytes) return sha256_of(text);
  Sha256 hash;
  const std::size_t last = text.size() - kSampleBytes;
  for (std::size_t i = 0; i < kSamples; ++i)
    hash.add(text.substr(last / (kSamples - 1) * i, kSampleBytes));
  hash.add(text.substr(last));
  return hash.finish();
}

Json whole_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  return sha256_of(MappedFile(path).text());
}

// Of each weights file its name, size and a hash of samples.
JsonObject weights_of(const ModelFolder& model) {
  std::set<std::filesystem::path> weight_files;
  for (const auto& entry : std::filesystem::directory_iterator(model.path())) {
    if (entry.path().extension() == ".safetensors") weight_files.insert(entry.path());
  }
  JsonObject weights;
  for (const auto& path : weight_files) {
    const MappedFile file(path);
    weights.emplace_back(path.filename().string(),
                         JsonObject{{"bytes", static_cast<std::int64_t>(file.bytes().size())},
                                    {"sampled_sha256", sampled_sha256(file.text())}});
  }
  return weights;
}

std::string shown(const Json* value) {
  if (value == nullptr) return "absent";
  std::string text = to_text(*value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

void compare(const Json* before, const Json* now, const std::string& path,
             std::vector<Difference>& found) {
  if (before != nullptr && now != nullptr && before->is_object() && now->is_object()) {
    std::vector<std::string> names;
    for (const Json* side : {before, now}) {
      for (const auto& [name, value] : std::get<JsonObject>(side->value())) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    for (const std::string& name : names)
      compare(before->find(name), now->find(name), path.empty() ? name : path + "." + name, found);
    return;
  }
  const bool equal = before != nullptr && now != nullptr && to_text(*before) == to_text(*now);
  if (!equal) found.push_back({path, shown(before), shown(now)});
}

}  // namespace

Json model_fingerprint(const ModelFolder& model) {
  return JsonObject{
      {"config_sha256", whole_file(model.path() / "config.json")},
      {"generation_config_sha256", whole_file(model.path() / "generation_config.json")},
      {"tokenizer_sha256", whole_file(model.tokenizer_path())},
      {"weights", weights_of(model)}};
}

std::optional<std::string> weights_sha256(const ModelFolder& model) {
  JsonObject weights = weights_of(model);
  if (weights.empty()) return std::nullopt;
  return sha256_of(to_text(std::move(weights)));
}

std::vector<Difference> find_differences(const Json& before, const Json& now) {
  std::vector<Difference> found;
  compare(&before, &now, "", found);
  return found;
}

std::vector<std::string> differences(const Json& before, const Json& now) {
  std::vector<std::string> texts;
  for (const Difference& d : find_differences(before, now))
    texts.push_back(fmt::format("{}: was {}, now {}", d.path, d.before, d.now));
  return texts;
}

}  // namespace longhaul
