#include "partition/flops.h"

#include <algorithm>

namespace longhaul {
namespace {

// Sum of min(t + 1, most) over positions t in [0, end).
double sum_of_visible(std::int64_t end, std::int64_t most) {
  const double growing = static_cast<double>(std::min(end, most));
  return growing * (growing + 1) / 2 +
         static_cast<double>(std::max<std::int64_t>(0, end - most)) * static_cast<double>(most);
}

}  // namespace

double linear_flops_per_token(const ModelSpec& spec) {
  const auto d_model = static_cast<double>(spec.d_model);
  const auto q_rows = static_cast<double>(spec.n_heads * spec.head_dim);
  const auto kv_rows = static_cast<double>(spec.n_kv_heads * spec.head_dim);
  return 2 * d_model * (2 * q_rows + 2 * kv_rows + 3 * static_cast<double>(spec.d_ff));
}

double attention_flops_per_key(const ModelSpec& spec) {
  return 4 * static_cast<double>(spec.head_dim);
}

double visible_keys(const KeyWindow& kept, Extent tokens) {
  const std::int64_t most = kept.n_keys(tokens.end);
  return sum_of_visible(tokens.end, most) - sum_of_visible(tokens.begin, most);
}

double visible_history_keys(const KeyWindow& kept, Extent tokens) {
  if (kept.is_unlimited())
    return static_cast<double>(tokens.begin) * static_cast<double>(tokens.size());
  // Sink keys of the history are seen by all queries; the i-th query sees recent - 1 - i recent
  // ones.
  const std::int64_t sink = std::min(kept.sink, tokens.begin);
  const std::int64_t recent =
      std::min(std::max<std::int64_t>(0, kept.recent - 1), tokens.begin - sink);
  const double n = static_cast<double>(std::min(tokens.size(), recent));
  const double of_window = n * static_cast<double>(recent) - n * (n - 1) / 2;
  return static_cast<double>(sink) * static_cast<double>(tokens.size()) + of_window;
}

}  // namespace longhaul
