// Reads documents and asks about their records: every document is prefilled once, every question is
// a fork of it, and forks are decoded together.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/eval/eval_model.h"
#include "tools/eval/haystack.h"
#include "tools/eval/needle_plan.h"
#include "tools/eval/needle_results.h"
#include "tools/eval/step_runner.h"

namespace longhaul {

struct NeedleTexts {
  std::vector<std::filesystem::path> haystacks;  // one after the other; empty: made-up prose
  std::string document_start;                    // text in front of the hay
  std::string needle = R"( The access code of {key} is {value}.)";
  std::string question = R"(\nQuestion: What is the access code of {key}?\nAnswer:)";
  std::string answer = "{value}.";
  bool parse_special = false;  // special tokens written in these texts (not in the hay) count
};

struct NeedleRunnerArgs {
  const EvalModel& model;
  const NeedleTexts& texts;
  std::uint64_t seed = 1;
  std::int64_t max_answer_tokens = 32;
  std::int64_t n_parallel = 8;  // questions answered at the same time
  std::function<void(const std::string&)> on_progress;
  std::function<bool()> stop_requested;
};

class NeedleRunner {
 public:
  // Reads the haystacks; `longest` is the length of the longest document to come.
  NeedleRunner(const NeedleRunnerArgs& args, std::int64_t longest);

  // The longest question on these documents, with the longest answer, in tokens.
  std::int64_t tail_tokens(std::span<const PlannedDocument> documents) const;

  // Throws kInvalidArgument for a document that cannot be made: its records have no room.
  void check(std::span<const PlannedDocument> documents) const;

  // Asks for every record of every document, with ranks whose heads have these roles. Returns
  // early, with what is done, when a stop is requested: readings are of documents of which every
  // record was asked for. Throws Error of every kind.
  NeedleRun run(StepRunner& steps, const std::string& name, const HeadRoles& roles,
                std::span<const PlannedDocument> documents) const;

 private:
  Haystack make_document(const PlannedDocument& planned) const;
  std::vector<std::int32_t> question_about(const PlannedNeedle& needle) const;
  bool prefill(StepRunner& steps, const PlannedDocument& planned, const Haystack& document,
               NeedleReading& reading) const;
  std::vector<std::string> ask(StepRunner& steps, std::span<const PlannedNeedle> needles) const;
  bool ask_all(StepRunner& steps, const PlannedDocument& planned, const Haystack& document,
               NeedleRun& run) const;
  bool is_answered(std::span<const std::int32_t> tokens) const;

  NeedleRunnerArgs args_;
  std::vector<std::int32_t> start_;
  std::vector<std::int32_t> hay_;
};

}  // namespace longhaul
