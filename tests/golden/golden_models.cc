#include "tests/golden/golden_models.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/safetensors.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;

std::vector<std::int32_t> token_ids(const JsonField& list) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < list.size(); ++i) {
    ids.push_back(static_cast<std::int32_t>(
        list.at(i).as_integer(0, std::numeric_limits<std::int32_t>::max())));
  }
  return ids;
}

Logits read_logits(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const TensorBytes tensor = file.tensor("logits");
  require(tensor.dtype == DType::kF32 && tensor.shape.size() == 2,
          path.string() + ": logits must be F32 [n_tokens, vocab_size]");
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return {tensor.shape[0], tensor.shape[1], std::vector<double>(values.begin(), values.end())};
}

NeedleQuestion::Answer read_answer(const JsonField& field) {
  NeedleQuestion::Answer answer;
  answer.text = field.at("answer").as_string();
  answer.top_ids = token_ids(field.at("first_top5_ids"));
  const JsonField logits = field.at("first_top5_logits");
  for (std::size_t i = 0; i < logits.size(); ++i) {
    answer.top_logits.push_back(logits.at(i).as_number());
  }
  return answer;
}

}  // namespace

std::vector<std::string> golden_model_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_path("tests/golden/models"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenModel read_golden_model(const std::string& name) {
  GoldenModel golden{.name = name,
                     .folder = source_path("tests/golden/models") / name,
                     .tokens = {},
                     .logits = {}};
  const std::filesystem::path tokens = golden.folder / "tokens.json";
  const Json json = parse_json(read_file(tokens, kMaxFileBytes), tokens.string());
  golden.tokens = token_ids(JsonField(json, tokens.string()));
  golden.logits = read_logits(golden.folder / "logits.safetensors");
  require(golden.logits.n_tokens == static_cast<std::int64_t>(golden.tokens.size()),
          name + ": tokens.json and logits.safetensors differ in length");
  return golden;
}

Logits read_bf16_logits(const GoldenModel& golden) {
  return read_logits(golden.folder / "logits_bf16.safetensors");
}

std::int32_t argmax(std::span<const double> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

double margin(std::span<const double> row) {
  std::vector<double> sorted(row.begin(), row.end());
  std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
  return *std::max_element(row.begin(), row.end()) - sorted[1];
}

std::vector<NeedleQuestion> read_needle_questions(const std::filesystem::path& reference_json) {
  const Json json = parse_json(read_file(reference_json, kMaxFileBytes), reference_json.string());
  const JsonField list(json, reference_json.string());
  std::vector<NeedleQuestion> questions;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonField field = list.at(i);
    questions.push_back({.prompt = field.at("prompt").as_string(),
                         .ids = token_ids(field.at("ids")),
                         .expected = field.at("expected").as_string(),
                         .sink = field.at("sink").as_integer(0, 1 << 20),
                         .recent = field.at("recent").as_integer(1, 1 << 20),
                         .dense = read_answer(field.at("dense")),
                         .duo = read_answer(field.at("duo")),
                         .streaming = read_answer(field.at("streaming"))});
  }
  return questions;
}

HeadRoles mixed_roles(const ModelSpec& spec) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  roles.sink = 5;
  roles.recent = 23;
  for (std::size_t i = 0; i < roles.roles.size(); ++i) {
    if (i % 3 != 0) roles.roles[i] = HeadRole::kStreaming;
  }
  return roles;
}

}  // namespace longhaul::test
