// What a perplexity evaluation found: the negative log-likelihood of every scored token under every
// policy, how long that took, and how it is written. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/text_columns.h"
#include "tools/eval/line_plot.h"

namespace longhaul {

struct ScoredToken {
  std::int64_t position = 0;  // in the text; its first token has no score
  double nll = 0;             // -ln p(token | what the policy let the model see before it)
};

// One policy over the whole text.
struct PolicyCurve {
  std::string name = {};                 // "dense", "streaming", ...
  std::string description = {};          // what a query sees
  std::vector<ScoredToken> tokens = {};  // ascending positions
  double seconds = 0;                    // of the model's steps
  std::size_t kv_bytes = 0;              // the most at the end of any step
  bool is_complete = true;               // no stop came before its last token
  std::optional<double> seconds_per_token() const {
    if (tokens.empty()) return std::nullopt;
    return seconds / static_cast<double>(tokens.size());
  }
};

struct PerplexityReport {
  std::string title = {};
  Json settings = {};
  std::int64_t n_tokens = 0;  // of the text
  std::int64_t bucket = 256;  // positions that a point of the curve stands for
  std::vector<PolicyCurve> curves = {};
  bool is_complete = true;
};

// Mean over the scored positions in `positions`; empty when there is none.
std::optional<double> mean_nll(const PolicyCurve& curve, Extent positions);

// [0, first), [first, 2 first), [2 first, 4 first), ... up to n_tokens.
std::vector<Extent> doubling_ranges(std::int64_t n_tokens, std::int64_t first);

Json to_json(const PerplexityReport& report);
// Lines policy,begin,end,tokens,mean_nll: a bucket of positions each.
std::string to_csv(const PerplexityReport& report);
// Mean NLL (log perplexity) over position, a curve for each policy.
LinePlot to_plot(const PerplexityReport& report);
// Means over doubling ranges, time per token, and times relative to the fastest; policies that do
// not fit into `width` stand below the others.
std::string to_table(const PerplexityReport& report, std::size_t width = kAnyWidth);

}  // namespace longhaul
