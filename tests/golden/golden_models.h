// The stored results of other implementations that golden tests compare with: the models of
// tests/golden/models with Hugging Face's logits (README.md there says how they were made), and the
// questions and answers of the needle model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/head_profile.h"
#include "model/model_spec.h"

namespace longhaul::test {

// Logits of one text, a row after each token.
struct Logits {
  std::int64_t n_tokens = 0;
  std::int64_t vocab_size = 0;
  std::vector<double> values;  // [n_tokens, vocab_size]
  std::span<const double> row(std::int64_t i) const {
    return std::span(values).subspan(static_cast<std::size_t>(i * vocab_size),
                                     static_cast<std::size_t>(vocab_size));
  }
};

struct GoldenModel {
  std::string name;
  std::filesystem::path folder;  // of the model
  std::vector<std::int32_t> tokens;
  Logits logits;  // computed in float32 from the weights as stored
};

std::vector<std::string> golden_model_names();  // sorted
GoldenModel read_golden_model(const std::string& name);
// As computed in bfloat16 throughout; only for models with bf16 weights.
Logits read_bf16_logits(const GoldenModel& golden);

// The token with the largest logit; the lower id of equal ones.
std::int32_t argmax(std::span<const double> row);
// What the largest logit is above the second.
double margin(std::span<const double> row);

// Every third head keeps everything, the others 5 + 23 tokens; both edges fall inside blocks.
HeadRoles mixed_roles(const ModelSpec& spec);

// One question to the needle model (reference.json), and what comes out under three ways of
// attending.
struct NeedleQuestion {
  struct Answer {
    std::string text;
    std::vector<std::int32_t> top_ids;  // of the first answer token, descending
    std::vector<double> top_logits;
  };
  std::string prompt;
  std::vector<std::int32_t> ids;  // of the prompt
  std::string expected;           // the code that was asked for
  std::int64_t sink = 0;
  std::int64_t recent = 0;
  Answer dense, duo, streaming;
};
std::vector<NeedleQuestion> read_needle_questions(const std::filesystem::path& reference_json);

}  // namespace longhaul::test
