#include "tools/identify/head_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/error.h"
#include "kernels/copy_rows.h"
#include "kernels/highest_weights.h"
#include "kernels/linear.h"
#include "tools/eval/random_draws.h"
#include "tools/identify/device_rows.h"

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

// Scores of one head's queries in some rows with all keys, not scaled: [n_rows, n_keys]. Keys that
// a query does not see have scores, too.
DeviceTensor<float, 2> scores_of(StreamRef stream, const DenseRows& rows,
                                 std::span<const std::int64_t> which, std::int64_t head) {
  const std::int64_t head_dim = rows.q.dim(2);
  const std::int64_t kv_head = head / (rows.q.dim(1) / rows.k.dim(1));
  const DeviceTensor<float, 2> q(stream, {static_cast<std::int64_t>(which.size()), head_dim});
  std::vector<CopyRowsItem> items;
  const std::size_t row_bytes = static_cast<std::size_t>(head_dim) * sizeof(float);
  const std::size_t q_stride = static_cast<std::size_t>(rows.q.stride(0)) * sizeof(float);
  for (std::size_t i = 0; i < which.size(); ++i) {
    if (i > 0 && which[i] == which[i - 1] + 1) {
      ++items.back().n_rows;
      continue;
    }
    float* to = q.data() + static_cast<std::int64_t>(i) * head_dim;
    items.push_back({.to = reinterpret_cast<std::byte*>(to),
                     .to_stride = row_bytes,
                     .from = reinterpret_cast<const std::byte*>(rows.q[which[i]][head].data()),
                     .from_stride = q_stride,
                     .row_bytes = row_bytes});
  }
  copy_rows(stream, items);
  DeviceTensor<float, 2> scores(stream, {q.dim(0), rows.k.dim(0)});
  linear(stream, {.x = q.view(),
                  .weight = {.data = rows.k[0][kv_head].data(),
                             .n_out = rows.k.dim(0),
                             .n_in = head_dim,
                             .row_stride = rows.k.stride(0)},
                  .out = scores.view()});
  return scores;
}

// What the host looks at of rows: on CPUs their own memory, else copies, of keys once a layer.
class RowsOnHost {
 public:
  explicit RowsOnHost(StreamRef stream) : stream_(stream) {}
  // Holds until the next call.
  DenseRows of(const DenseRows& rows) {
    if (stream_.device() == Device::kCpu) return rows;
    if (rows.layer != layer_) {
      k_ = on_host<3>(stream_, rows.k);
      layer_ = rows.layer;
    }
    q_ = on_host<3>(stream_, rows.q);
    m_ = on_host<2>(stream_, rows.m);
    l_ = on_host<2>(stream_, rows.l);
    DenseRows there = rows;
    there.q = q_.view();
    there.m = m_.view();
    there.l = l_.view();
    there.k = k_.view();
    return there;
  }

 private:
  StreamRef stream_;
  LayerId layer_{-1};  // whose keys are there
  Tensor<float, 3> q_, k_;
  Tensor<float, 2> m_, l_;
};

// Maxima pass over NaN: a broken model's heads would have scores like any others. `l` of a query is
// NaN where one of its scores is.
void require_finite_rows(StreamRef stream, const DenseRows& rows) {
  const Tensor<float, 2> l = on_host<2>(stream, rows.l);
  for (std::int64_t row = 0; row < l.dim(0); ++row) {
    for (std::int64_t head = 0; head < l.dim(1); ++head) {
      const float sum = l.view()[row][head];
      if (std::isfinite(sum)) continue;
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("layer {}, head {}: attention at position {} sums up to {}; the "
                      "model's weights or the numbers that it computes from them are "
                      "broken",
                      rows.layer.value, head, rows.positions[static_cast<std::size_t>(row)], sum));
    }
  }
}

// TwoWayPass::observe_dense; throws kCorruptData for rows whose attention is not finite.
void observe_finite(TwoWayPass& pass, std::span<const std::int32_t> tokens,
                    const std::function<void(const DenseRows&)>& observe) {
  pass.observe_dense(tokens, [&](const DenseRows& rows) {
    require_finite_rows(pass.stream(), rows);
    observe(rows);
  });
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
  RowsOnHost on_host(pass.stream());
  observe_finite(pass, tokens, [&](const DenseRows& there) {
    const DenseRows rows = on_host.of(there);
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
  observe_finite(pass, tokens, [&](const DenseRows& rows) {
    std::vector<std::int64_t> which;
    for (std::int64_t row = 0; row < rows.q.dim(0); ++row) {
      if (source_of.contains(rows.positions[static_cast<std::size_t>(row)])) which.push_back(row);
    }
    if (which.empty()) return;
    for (std::int64_t head = 0; head < spec.n_heads; ++head) {
      const DeviceTensor<float, 2> there = scores_of(pass.stream(), rows, which, head);
      const Tensor<float, 2> scores = on_host<2>(pass.stream(), there.view());
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
  const StreamRef stream = pass.stream();
  const DeviceTensor<float, 2> best(stream, {static_cast<std::int64_t>(n_heads), n_first});
  set_to_zero(stream, reinterpret_cast<std::byte*>(best.data()), best.bytes());
  observe_finite(pass, tokens, [&](const DenseRows& rows) {
    // Positions ascend.
    const auto first = std::lower_bound(rows.positions.begin(), rows.positions.end(), n_first);
    std::vector<std::int64_t> which(static_cast<std::size_t>(rows.positions.end() - first));
    std::iota(which.begin(), which.end(), first - rows.positions.begin());
    if (which.empty()) return;
    const Extent of_second{which.front(), which.back() + 1};
    for (std::int64_t head = 0; head < spec.n_heads; ++head) {
      const DeviceTensor<float, 2> scores = scores_of(stream, rows, which, head);
      const auto place =
          static_cast<std::int64_t>(place_of(spec, rows.layer, head / spec.gqa_group()));
      highest_weights(stream, {.scores = scores.view(),
                               .scale = rows.sm_scale,
                               .m = rows.m.slice(0, of_second).slice(1, {head, head + 1}),
                               .l = rows.l.slice(0, of_second).slice(1, {head, head + 1}),
                               .highest = best.view()[place]});
    }
  });
  comm.all_reduce_max(std::span(best.data(), static_cast<std::size_t>(best.size())));
  HeadScores out;
  for (std::size_t i = 0; i < n_heads; ++i) {
    const Tensor<float, 1> from = on_host<1>(stream, best.view()[static_cast<std::int64_t>(i)]);
    out.push_back(std::accumulate(from.data(), from.data() + n_first, 0.0) /
                  static_cast<double>(n_first));
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
