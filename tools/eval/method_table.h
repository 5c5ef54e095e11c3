// Cache methods side by side: what each answers of a needle set under each budget, how well it
// predicts a text, and what it costs. As text, CSV, JSON and pictures. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text_columns.h"
#include "tools/eval/line_plot.h"
#include "tools/eval/needle_results.h"

namespace longhaul {

// One method with one budget on documents of one length.
struct MethodRow {
  std::string asked_for = {};  // the method as it was given, without its budget
  std::string method = {};     // with all its parameters
  std::int64_t length = 0;     // of the documents, tokens
  std::int64_t budget = 0;     // tokens that a head keeps; the length where all are kept
  NeedleScore score = {};
  std::int64_t n_documents = 0;
  std::size_t kv_bytes = 0;      // measured: of the caches of a document that is whole, the most
  std::size_t kv_predicted = 0;  // by the formula
  double prefill_seconds = 0;    // of all documents
  double answer_seconds = 0;     // of all questions
  // Of a text's continuation (tools/eval/continuation.h), where a text was given.
  std::optional<double> perplexity = {};
  std::optional<double> answer_tokens_per_s = {};
  Json heads = {};  // the table of heads
};

struct MethodTable {
  Json settings = {};
  std::vector<MethodRow> rows = {};
  bool is_complete = true;
};

// The row of a run on documents that are all of one length.
MethodRow row_of(const NeedleRun& run);

// A line for each row; where one would be wider than `width`, methods stand above their numbers.
std::string to_text(const MethodTable& table, std::size_t width = kAnyWidth);
// method,length,budget,asked,right,kv_bytes,kv_bytes_predicted,prefill_tokens_per_s,
// answer_seconds_per_question,perplexity,answer_tokens_per_s
std::string to_csv(const MethodTable& table);
Json to_json(const MethodTable& table);
// Right answers over budget, both in percent, a curve for each method and length.
LinePlot answers_plot(const MethodTable& table);
// Perplexity over budget; without curves where no text was given.
LinePlot perplexity_plot(const MethodTable& table);

}  // namespace longhaul
