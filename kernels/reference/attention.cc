#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longhaul::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Mask mask_of(const AttentionCase& c, std::size_t query, std::size_t head, std::size_t n_heads) {
  if (c.masks.empty()) return {};
  if (c.masks.size() == 1) return c.masks[0];
  if (c.masks.size() == c.q_positions.size()) return c.masks[query];
  return c.masks.at(query * n_heads + head);
}

}  // namespace

AttentionResult attention(const AttentionCase& c) {
  const auto q_len = c.q_positions.size();
  const auto kv_len = c.k_positions.size();
  const auto n_heads = static_cast<std::size_t>(c.n_heads);
  const auto n_kv_heads = static_cast<std::size_t>(c.n_kv_heads);
  const auto head_dim = static_cast<std::size_t>(c.head_dim);
  require(c.q.size() == q_len * n_heads * head_dim, "reference attention: size of q");
  require(c.k.size() == kv_len * n_kv_heads * head_dim, "reference attention: size of k");
  require(c.v.size() == c.k.size(), "reference attention: size of v");
  require(n_heads % n_kv_heads == 0, "reference attention: n_heads % n_kv_heads");

  AttentionResult result;
  result.out.assign(c.q.size(), 0.0);
  result.lse.assign(q_len * n_heads, kMinusInfinity);
  for (std::size_t i = 0; i < q_len; ++i) {
    for (std::size_t h = 0; h < n_heads; ++h) {
      const std::size_t kv_head = h / (n_heads / n_kv_heads);
      const Mask mask = mask_of(c, i, h, n_heads);
      const double* q = &c.q[(i * n_heads + h) * head_dim];

      std::vector<double> scores(kv_len, kMinusInfinity);
      double max = kMinusInfinity;
      for (std::size_t j = 0; j < kv_len; ++j) {
        if (!mask.shows(c.q_positions[i], c.k_positions[j])) continue;
        const std::size_t in_group = h % (n_heads / n_kv_heads);
        if (!c.seen_by.empty() && (c.seen_by[kv_head * kv_len + j] >> in_group & 1) == 0) continue;
        const double* k = &c.k[(j * n_kv_heads + kv_head) * head_dim];
        double dot = 0;
        for (std::size_t d = 0; d < head_dim; ++d) dot += q[d] * k[d];
        scores[j] = dot * c.sm_scale;
        max = std::max(max, scores[j]);
      }
      if (max == kMinusInfinity) continue;

      std::vector<double>& weights = scores;
      double sum = 0;
      for (double& score : scores) {
        score = std::exp(score - max);
        sum += score;
      }
      result.lse[i * n_heads + h] = max + std::log(sum);
      const double denominator =
          sum + (c.sink_logits.empty() ? 0.0 : std::exp(c.sink_logits[h] - max));
      double* out = &result.out[(i * n_heads + h) * head_dim];
      for (std::size_t j = 0; j < kv_len; ++j) {
        const double weight = weights[j] / denominator;
        if (weight == 0.0) continue;
        const double* v = &c.v[(j * n_kv_heads + kv_head) * head_dim];
        for (std::size_t d = 0; d < head_dim; ++d) out[d] += weight * v[d];
      }
    }
  }
  return result;
}

}  // namespace longhaul::reference
