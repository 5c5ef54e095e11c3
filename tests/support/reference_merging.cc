// The reference model's heads that merge tokens (DMC; Nawrot et al. 2024, arXiv 2403.09636), token
// by token as the published inference code does it: running sums, from which what leaves the window
// of 12 is taken away; the newest slot is written anew with each token that merges.
#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "tests/support/reference_model.h"

namespace longhaul::test {
namespace {

constexpr double kBf16Eps = 1.0 / 128;

struct Weighted {
  std::vector<double> k, v;
  double weight = 0;
};

// Of one KV head: the sums of the open slot.
struct Sums {
  std::vector<double> k, v;
  double weight = 0;
  std::int64_t n = 0;  // tokens of the slot
  std::deque<Weighted> window;
};

void scale(std::vector<double>& x, double factor) {
  for (double& value : x) value *= factor;
}
void add(std::vector<double>& x, double factor, const std::vector<double>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
}

// The next token; returns what its slot holds then.
Weighted advance(Sums& sums, bool merges, Weighted token, std::int64_t window) {
  scale(token.k, token.weight);
  scale(token.v, token.weight);
  const double keeps = merges ? 1 : 0;
  scale(sums.k, keeps);
  scale(sums.v, keeps);
  sums.weight *= keeps;
  sums.n = (merges ? sums.n : 0) + 1;
  if (sums.n > window) {
    const Weighted& oldest = sums.window.front();
    add(sums.k, -1, oldest.k);
    add(sums.v, -1, oldest.v);
    sums.weight -= oldest.weight;
  }
  add(sums.k, 1, token.k);
  add(sums.v, 1, token.v);
  sums.weight += token.weight;
  sums.window.push_back(std::move(token));
  if (static_cast<std::int64_t>(sums.window.size()) > window) sums.window.pop_front();
  Weighted out{sums.k, sums.v, 1};
  scale(out.k, 1 / sums.weight);
  scale(out.v, 1 / sums.weight);
  return out;
}

}  // namespace

ReferenceModel::Matrix ReferenceModel::merged_attention(const Layer& layer, Matrix q, Matrix k,
                                                        const Matrix& v, Merged* merged) const {
  const TokenMerging merging = spec_.token_merging.value();
  const std::int64_t head_dim = spec_.head_dim;
  const std::int64_t group = spec_.gqa_group();
  Matrix out(q.n_rows, q.n_columns);
  for (std::int64_t kv_head = 0; kv_head < spec_.n_kv_heads; ++kv_head) {
    const auto n = static_cast<std::size_t>(head_dim);
    Sums sums;
    sums.k.resize(n);
    sums.v.resize(n);
    std::vector<Weighted> slots;
    for (std::int64_t t = 0; t < q.n_rows; ++t) {
      double* const key = k.row(t) + kv_head * head_dim;
      const double* const value = v.row(t) + kv_head * head_dim;
      const double decision = key[head_dim - 1] - merging.init_val;
      if (merged != nullptr && t > 0) merged->margin = std::min(merged->margin, std::abs(decision));
      double logit = 0;
      for (std::int64_t g = 0; g < group; ++g)
        logit += q.row(t)[(kv_head * group + g) * head_dim + head_dim - 1];
      logit = logit / static_cast<double>(group) + merging.init_val;
      key[head_dim - 1] = 0;
      const bool merges = t > 0 && decision > 0;
      Weighted slot = advance(
          sums, merges,
          {{key, key + head_dim}, {value, value + head_dim}, 1 / (1 + std::exp(-logit)) + kBf16Eps},
          merging.window);
      rotate(slot.k.data(), t);
      slot.k.back() = 0;
      if (merges) slots.pop_back();
      slots.push_back(std::move(slot));
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        double* const query = q.row(t) + head * head_dim;
        query[head_dim - 1] = 0;
        rotate(query, t);
        query[head_dim - 1] = 0;
        std::vector<double> scores;
        for (const Weighted& s : slots) {
          double product = 0;
          for (std::int64_t d = 0; d < head_dim; ++d)
            product += query[d] * s.k[static_cast<std::size_t>(d)];
          scores.push_back(product / std::sqrt(static_cast<double>(head_dim)));
        }
        double largest = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        if (!layer.sink_logits.empty()) {
          const double sink = layer.sink_logits[static_cast<std::size_t>(head)];
          largest = std::max(largest, sink);
          sum = std::exp(sink - largest);
        }
        for (double& score : scores) sum += score = std::exp(score - largest);
        for (std::size_t i = 0; i < slots.size(); ++i) {
          for (std::int64_t d = 0; d < head_dim; ++d)
            out.row(t)[head * head_dim + d] +=
                scores[i] / sum * slots[i].v[static_cast<std::size_t>(d)];
        }
      }
    }
    if (merged != nullptr) merged->n_slots.push_back(static_cast<std::int64_t>(slots.size()));
  }
  return apply(layer.o, out);
}

}  // namespace longhaul::test
