#include "tools/identify/head_scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "kernels/linear.h"
#include "tools/eval/random_draws.h"

namespace longhaul {
namespace {

// Tokens before a copied one that must be the same in the record: the first word of a question
// stands everywhere.
constexpr std::int64_t kContext = 2;

std::size_t place_of(const ModelSpec& spec, LayerId layer, std::int64_t kv_head) {
  return static_cast<std::size_t>(layer.value * spec.n_kv_heads + kv_head);
}

// Of each query head: a number for each layer and head, summed up over rows and ranks.
class HeadSums {
 public:
  explicit HeadSums(const ModelSpec& spec)
      : spec_(spec), sums_(static_cast<std::size_t>(spec.n_layers * spec.n_heads)) {}
  void add(LayerId layer, std::int64_t head, double x) {
    sums_[static_cast<std::size_t>(layer.value * spec_.n_heads + head)] += x;
  }
  // The best query head of each KV head, divided by `n`.
  HeadScores best(Communicator& comm, double n) {
    comm.all_reduce_sum(std::span(sums_));
    HeadScores out(static_cast<std::size_t>(spec_.n_layers * spec_.n_kv_heads));
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      double& to = out[i / static_cast<std::size_t>(spec_.gqa_group())];
      to = std::max(to, sums_[i] / n);
    }
    return out;
  }

 private:
  const ModelSpec& spec_;
  std::vector<double> sums_;  // [n_layers, n_heads]
};

double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Scores of one head's queries in some rows with all keys: [n_rows, n_keys], scaled. Keys that a
// query does not see have scores, too.
Tensor<float, 2> scores_of(const DenseRows& rows, std::span<const std::int64_t> which,
                           std::int64_t head) {
  const std::int64_t head_dim = rows.q.dim(2);
  const std::int64_t kv_head = head / (rows.q.dim(1) / rows.k.dim(1));
  Tensor<float, 2> q({static_cast<std::int64_t>(which.size()), head_dim});
  for (std::size_t i = 0; i < which.size(); ++i) {
    const float* from = rows.q[which[i]][head].data();
    std::transform(from, from + head_dim, q.data() + static_cast<std::int64_t>(i) * head_dim,
                   [&](float x) { return x * rows.sm_scale; });
  }
  Tensor<float, 2> scores({q.dim(0), rows.k.dim(0)});
  linear(StreamRef::cpu(), {.x = q.view(),
                            .weight = {.data = rows.k[0][kv_head].data(),
                                       .n_out = rows.k.dim(0),
                                       .n_in = head_dim,
                                       .row_stride = rows.k.stride(0)},
                            .out = scores.view()});
  return scores;
}

}  // namespace

CopyScores copy_scores(TwoWayPass& pass, const ModelSpec& spec, Communicator& comm,
                       const CopyText& text) {
  require(text.n_random >= 2 && text.n_copies >= 2,
          "scores of copies: at least two tokens and two copies are needed");
  RandomDraws draws(text.seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < text.n_random; ++i)
    tokens.push_back(
        static_cast<std::int32_t>(draws.below(static_cast<std::size_t>(spec.vocab_size))));
  for (std::int64_t copy = 1; copy < text.n_copies; ++copy) {
    for (std::int64_t i = 0; i < text.n_random; ++i)
      tokens.push_back(tokens[static_cast<std::size_t>(i)]);
  }
  HeadSums echo(spec);
  HeadSums induction(spec);
  pass.observe_dense(tokens, [&](const DenseRows& rows) {
    for (std::int64_t row = 0; row < rows.q.dim(0); ++row) {
      const std::int64_t at = rows.positions[static_cast<std::size_t>(row)];
      for (std::int64_t head = 0; head < spec.n_heads; ++head) {
        const double lse = static_cast<double>(rows.m[row][head]) +
                           std::log(static_cast<double>(rows.l[row][head]));
        const auto weight = [&](std::int64_t key) {
          return std::exp(static_cast<double>(rows.sm_scale) *
                              dot(rows.q[row][head].data(),
                                  rows.k[key][head / spec.gqa_group()].data(), spec.head_dim) -
                          lse);
        };
        for (std::int64_t key = at - text.n_random; key >= 0; key -= text.n_random) {
          echo.add(rows.layer, head, weight(key));
          induction.add(rows.layer, head, weight(key + 1));
        }
      }
    }
  });
  const auto n_queries = static_cast<double>(text.n_random * (text.n_copies - 1));
  return {.echo = echo.best(comm, n_queries), .induction = induction.best(comm, n_queries)};
}

HeadScores needle_scores(TwoWayPass& pass, const ModelSpec& spec, Communicator& comm,
                         std::span<const std::int32_t> tokens, std::int64_t n_answer) {
  // Where in the records the token behind a query stands.
  const auto n_tokens = static_cast<std::int64_t>(tokens.size());
  const std::int64_t first = n_tokens - n_answer;
  std::map<std::vector<std::int32_t>, std::int64_t> ends;  // of runs before the questions
  const auto run_to = [&](std::int64_t end) {
    return std::vector<std::int32_t>(tokens.begin() + end - kContext, tokens.begin() + end + 1);
  };
  for (std::int64_t i = kContext; i < first; ++i) ends[run_to(i)] = i;
  std::map<std::int64_t, std::int64_t> source_of;  // of the token behind each query
  for (std::int64_t i = std::max(first, kContext); i < n_tokens; ++i) {
    const auto found = ends.find(run_to(i));
    if (found != ends.end()) source_of[i - 1] = found->second;
  }
  require(!source_of.empty(),
          "needle scores: no token of the answers is a copy of one in the text before them");
  HeadSums hits(spec);
  pass.observe_dense(tokens, [&](const DenseRows& rows) {
    std::vector<std::int64_t> which;
    for (std::int64_t row = 0; row < rows.q.dim(0); ++row) {
      if (source_of.contains(rows.positions[static_cast<std::size_t>(row)])) which.push_back(row);
    }
    if (which.empty()) return;
    for (std::int64_t head = 0; head < spec.n_heads; ++head) {
      const Tensor<float, 2> scores = scores_of(rows, which, head);
      for (std::size_t i = 0; i < which.size(); ++i) {
        const std::int64_t at = rows.positions[static_cast<std::size_t>(which[i])];
        const float* row = scores.data() + static_cast<std::int64_t>(i) * scores.dim(1);
        if (std::max_element(row, row + at + 1) - row == source_of.at(at))
          hits.add(rows.layer, head, 1);
      }
    }
  });
  return hits.best(comm, static_cast<double>(source_of.size()));
}

HeadScores repetition_scores(TwoWayPass& pass, const ModelSpec& spec, Communicator& comm,
                             std::span<const std::int32_t> tokens, std::int64_t n_first) {
  const std::size_t n_heads = static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads);
  std::vector<float> best(n_heads * static_cast<std::size_t>(n_first));
  pass.observe_dense(tokens, [&](const DenseRows& rows) {
    std::vector<std::int64_t> which;
    for (std::int64_t row = 0; row < rows.q.dim(0); ++row) {
      if (rows.positions[static_cast<std::size_t>(row)] >= n_first) which.push_back(row);
    }
    if (which.empty()) return;
    for (std::int64_t head = 0; head < spec.n_heads; ++head) {
      const Tensor<float, 2> scores = scores_of(rows, which, head);
      float* to = best.data() + place_of(spec, rows.layer, head / spec.gqa_group()) *
                                    static_cast<std::size_t>(n_first);
      for (std::size_t i = 0; i < which.size(); ++i) {
        const float lse = rows.m[which[i]][head] + std::log(rows.l[which[i]][head]);
        const float* row = scores.data() + static_cast<std::int64_t>(i) * scores.dim(1);
        for (std::int64_t key = 0; key < n_first; ++key)
          to[key] = std::max(to[key], std::exp(row[key] - lse));
      }
    }
  });
  comm.all_reduce_max(std::span(best));
  HeadScores out;
  for (std::size_t i = 0; i < n_heads; ++i) {
    const float* from = best.data() + i * static_cast<std::size_t>(n_first);
    out.push_back(std::accumulate(from, from + n_first, 0.0) / static_cast<double>(n_first));
  }
  return out;
}

std::vector<double> razor_gates(const CopyScores& scores, double induction_share,
                                double echo_share) {
  std::vector<double> gates(scores.echo.size());
  const auto keep = [&](const HeadScores& of, double share) {
    std::vector<std::size_t> order(of.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return of[a] > of[b]; });
    const auto n =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(of.size()) - 1e-9));
    for (std::size_t i = 0; i < std::min(n, of.size()); ++i) gates[order[i]] = 1;
  };
  keep(scores.induction, induction_share);
  keep(scores.echo, echo_share);
  return gates;
}

std::vector<double> gates_of(const HeadScores& scores) {
  const double largest = std::max(1e-300, *std::max_element(scores.begin(), scores.end()));
  std::vector<double> gates;
  for (const double score : scores) gates.push_back(std::max(0.0, score / largest));
  return gates;
}

}  // namespace longhaul
