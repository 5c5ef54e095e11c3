#include "coordinator/fingerprint.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "model/safetensors.h"

namespace longhaul {
namespace {

// Files up to this size are hashed whole.
constexpr std::size_t kMostWholeBytes = std::size_t{1} << 20;

// Spread evenly over the file, whatever is in it: of files that are no safetensors files, and as
// earlier releases did it of all.
std::string spread_samples_sha256(std::string_view text) {
  constexpr std::size_t kSamples = 16;
  constexpr std::size_t kSampleBytes = std::size_t{64} << 10;
  Sha256 hash;
  const std::size_t last = text.size() - kSampleBytes;
  for (std::size_t i = 0; i < kSamples; ++i)
    hash.add(text.substr(last / (kSamples - 1) * i, kSampleBytes));
  hash.add(text.substr(last));
  return hash.finish();
}

// Of a tensor 4 KiB at the beginning, in the middle and at the end, of a large one also every 64
// MiB or so.
void add_samples(std::string_view tensor, Sha256& hash) {
  constexpr std::size_t kSampleBytes = 4096;
  constexpr std::size_t kBytesBetween = std::size_t{64} << 20;
  const std::size_t n_between = 2 + tensor.size() / kBytesBetween;
  if (tensor.size() <= (n_between + 1) * kSampleBytes) return hash.add(tensor);
  const std::size_t last = tensor.size() - kSampleBytes;
  for (std::size_t i = 0; i < n_between; ++i)
    hash.add(tensor.substr(last / n_between * i, kSampleBytes));
  hash.add(tensor.substr(last));
}

// A tensor that was replaced as a whole is noticed; a model of 16 GB with 300 tensors has about
// 1,150 samples.
std::string tensors_sha256(const SafetensorsFile::Header& header, std::string_view text) {
  Sha256 hash;
  hash.add(text.substr(0, header.data_offset));
  for (const auto& [name, entry] : header.entries)
    add_samples(text.substr(header.data_offset + entry.begin, entry.end - entry.begin), hash);
  return hash.finish();
}

// Else the kernel reads up to 8 MiB around each sample: gigabytes of a large model.
void read_no_further(const MappedFile& file) {
  // An advice that is not taken changes nothing but time.
  ::madvise(const_cast<std::byte*>(file.bytes().data()), file.bytes().size(), MADV_RANDOM);
}

constexpr std::string_view kOfTensors = "tensors:";  // tells it from samples spread over a file

enum class SampledBy { kTensor, kFile };

std::string sampled_sha256(const MappedFile& file, SampledBy by) {
  if (file.bytes().size() <= kMostWholeBytes) return sha256_of(file.text());
  if (by == SampledBy::kTensor) {
    try {
      read_no_further(file);
      const auto header = SafetensorsFile::parse_header(file.bytes(), file.path().string());
      return std::string(kOfTensors) + tensors_sha256(header, file.text());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorruptData) throw;  // who loads it says what is wrong
    }
  }
  return spread_samples_sha256(file.text());
}

Json whole_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  return sha256_of(MappedFile(path).text());
}

// Of each weights file its name, size and the hash of samples.
JsonObject weights_of(const ModelFolder& model, SampledBy by) {
  std::set<std::filesystem::path> weight_files;
  for (const auto& entry : std::filesystem::directory_iterator(model.path())) {
    if (entry.path().extension() == ".safetensors") weight_files.insert(entry.path());
  }
  JsonObject weights;
  for (const auto& path : weight_files) {
    const MappedFile file(path);
    weights.emplace_back(path.filename().string(),
                         JsonObject{{"bytes", static_cast<std::int64_t>(file.bytes().size())},
                                    {"sampled_sha256", sampled_sha256(file, by)}});
  }
  return weights;
}

std::string shown(const Json* value) {
  if (value == nullptr) return "absent";
  std::string text = to_text(*value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

bool is_of_tensors(const Json* value) {
  return value != nullptr && value->is_string() &&
         std::get<std::string>(value->value()).starts_with(kOfTensors);
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
  if (equal) return;
  found.push_back({path, shown(before), shown(now)});
  if (is_of_tensors(before) != is_of_tensors(now) && before != nullptr && now != nullptr) {
    (is_of_tensors(now) ? found.back().before : found.back().now) +=
        " (by an earlier release, which hashed other samples: whether the weights are the same "
        "cannot be told)";
  }
}

std::optional<std::string> weights_sha256(const ModelFolder& model, SampledBy by) {
  JsonObject weights = weights_of(model, by);
  if (weights.empty()) return std::nullopt;
  return sha256_of(to_text(std::move(weights)));
}

}  // namespace

Json model_fingerprint(const ModelFolder& model) {
  return JsonObject{
      {"config_sha256", whole_file(model.path() / "config.json")},
      {"generation_config_sha256", whole_file(model.path() / "generation_config.json")},
      {"tokenizer_sha256", whole_file(model.tokenizer_path())},
      {"weights", weights_of(model, SampledBy::kTensor)}};
}

std::optional<std::string> weights_sha256(const ModelFolder& model) {
  return weights_sha256(model, SampledBy::kTensor);
}

bool may_be_of_weights(const std::string& sha256, const ModelFolder& model) {
  const auto now = weights_sha256(model);
  return !now || *now == sha256 || weights_sha256(model, SampledBy::kFile) == sha256;
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
