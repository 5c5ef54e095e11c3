#include "model/heads/select_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr double kForced = std::numeric_limits<double>::infinity();

double pooled_at(std::span<const float> row, std::int64_t i, const Pool& pool) {
  if (pool.kind == PoolKind::kNone) return static_cast<double>(row[static_cast<std::size_t>(i)]);
  const std::int64_t half = pool.kernel / 2;
  const std::int64_t begin = std::max<std::int64_t>(0, i - half);
  const std::int64_t end = std::min(static_cast<std::int64_t>(row.size()), i + half + 1);
  double sum = 0;
  float max = row[static_cast<std::size_t>(begin)];
  for (std::int64_t j = begin; j < end; ++j) {
    sum += static_cast<double>(row[static_cast<std::size_t>(j)]);
    max = std::max(max, row[static_cast<std::size_t>(j)]);
  }
  return pool.kind == PoolKind::kMax ? static_cast<double>(max)
                                     : sum / static_cast<double>(pool.kernel);
}

// One score for each token; infinite where it stays whatever it got.
std::vector<double> scores_of(const KeepBudget& keep, const TokenScores& head) {
  const std::int64_t n = head.n_tokens;
  const auto n_masses = static_cast<std::int64_t>(head.masses.size());
  require(n > 0 && n_masses > 0 && n_masses % n == 0,
          fmt::format("scores of {} tokens: {} masses", n, n_masses));
  const std::int64_t gqa_group = n_masses / n;
  const std::int64_t n_scored = std::max<std::int64_t>(0, n - keep.n_recent);
  std::vector<double> scores(static_cast<std::size_t>(n), kForced);
  for (std::int64_t i = keep.n_sink; i < n_scored; ++i) {
    double sum = 0;
    double max = 0;
    for (std::int64_t g = 0; g < gqa_group; ++g) {
      const auto row =
          std::span(head.masses)
              .subspan(static_cast<std::size_t>(g * n), static_cast<std::size_t>(n_scored));
      const double pooled = pooled_at(row, i, keep.pool);
      sum += pooled;
      max = std::max(max, pooled);
    }
    scores[static_cast<std::size_t>(i)] =
        keep.group == GroupScore::kMax ? max : sum / static_cast<double>(gqa_group);
  }
  return scores;
}

// Token indices, best first.
std::vector<std::int64_t> ranked(std::span<const double> scores) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  return order;
}

// The same indices, all of them below n_all.
std::vector<std::int64_t> ascending(std::span<const std::int64_t> indices, std::size_t n_all) {
  std::vector<bool> is_there(n_all);
  for (const std::int64_t index : indices) is_there[static_cast<std::size_t>(index)] = true;
  std::vector<std::int64_t> sorted;
  sorted.reserve(indices.size());  // all heads' choices are there together
  for (std::size_t i = 0; i < n_all; ++i) {
    if (is_there[i]) sorted.push_back(static_cast<std::int64_t>(i));
  }
  return sorted;
}

std::vector<std::int64_t> best(std::span<const double> scores, std::int64_t n) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  if (n < static_cast<std::int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                     [&](std::int64_t a, std::int64_t b) {
                       const double of_a = scores[static_cast<std::size_t>(a)];
                       const double of_b = scores[static_cast<std::size_t>(b)];
                       return of_a != of_b ? of_a > of_b : a < b;
                     });
    return ascending(std::span(order).first(static_cast<std::size_t>(n)), scores.size());
  }
  return order;
}

std::vector<std::int64_t> all_of(std::int64_t n) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

using Kept = std::vector<std::vector<std::int64_t>>;

// TOVA: one choice for all heads, by the mean of their scores.
Kept alike(const std::vector<std::vector<double>>& scores, std::int64_t budget) {
  std::vector<double> mean(scores.front().size(), 0);
  for (const auto& head : scores) {
    for (std::size_t i = 0; i < mean.size(); ++i)
      mean[i] += head[i] / static_cast<double>(scores.size());
  }
  return Kept(scores.size(), best(mean, budget));
}

// Ada-KV: each head keeps a few of its own best, then the layer's best win wherever they are.
Kept shared(const std::vector<std::vector<double>>& scores, std::int64_t budget, double floor) {
  struct Candidate {
    double score;
    std::int64_t token;
    std::size_t head;
  };
  const auto n_heads = static_cast<std::int64_t>(scores.size());
  const auto own = static_cast<std::int64_t>(floor * static_cast<double>(budget));
  Kept kept(scores.size());
  std::vector<Candidate> candidates;
  candidates.reserve(scores.size() * scores.front().size());
  std::int64_t n_left = budget * n_heads;
  for (std::size_t head = 0; head < scores.size(); ++head) {
    for (const std::int64_t token : ranked(scores[head])) {
      const double score = scores[head][static_cast<std::size_t>(token)];
      if (score == kForced || static_cast<std::int64_t>(kept[head].size()) < own) {
        kept[head].push_back(token);
        --n_left;
      } else {
        candidates.push_back({score, token, head});
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.score != b.score) return a.score > b.score;
                     return a.token != b.token ? a.token < b.token : a.head < b.head;
                   });
  for (const Candidate& candidate : candidates) {
    if (n_left-- <= 0) break;
    kept[candidate.head].push_back(candidate.token);
  }
  for (auto& head : kept) std::sort(head.begin(), head.end());
  return kept;
}

void require_equal_heads(std::span<const KeepBudget> budgets, std::span<const TokenScores> heads) {
  for (std::size_t i = 0; i < heads.size(); ++i) {
    require(budgets[i] == budgets.front() && heads[i].n_tokens == heads.front().n_tokens,
            "heads of a layer that choose together have different budgets or tokens");
  }
}

}  // namespace

std::vector<TokenScores> choosers_of(const KeepBudget& keep, TokenScores head) {
  if (keep.n_choosers == 1) return {std::move(head)};
  const auto n = static_cast<std::size_t>(head.n_tokens);
  require(head.masses.size() == n * static_cast<std::size_t>(keep.n_choosers),
          fmt::format("{} query heads choose of {} tokens: {} masses", keep.n_choosers, n,
                      head.masses.size()));
  std::vector<TokenScores> choosers;
  for (auto row = head.masses.begin(); row != head.masses.end();
       row += static_cast<std::ptrdiff_t>(n)) {
    choosers.push_back(
        {.n_tokens = head.n_tokens, .masses = {row, row + static_cast<std::ptrdiff_t>(n)}});
  }
  return choosers;
}

std::vector<std::uint64_t> held_of(std::span<const std::vector<std::int64_t>> chosen) {
  std::vector<std::uint64_t> held;
  for (std::size_t g = 0; g < chosen.size(); ++g) {
    if (chosen[g].empty()) continue;
    held.resize(std::max(held.size(), static_cast<std::size_t>(chosen[g].back()) + 1));
    for (const std::int64_t token : chosen[g])
      held[static_cast<std::size_t>(token)] |= std::uint64_t{1} << g;
  }
  return held;
}

std::int64_t budget_of(const KeepBudget& keep, std::int64_t n_tokens) {
  const std::int64_t alike = std::min(n_tokens, keep.n_sink + keep.n_recent);  // of all choosers
  const std::int64_t apart = keep.n_choosers * (chosen_of(keep, n_tokens) - alike);
  return std::min(n_tokens, alike + apart);
}

std::int64_t chosen_of(const KeepBudget& keep, std::int64_t n_tokens) {
  const auto n = keep.share > 0
                     ? static_cast<std::int64_t>(keep.share * static_cast<double>(n_tokens))
                     : keep.n_tokens;
  return std::clamp(n, std::min(n_tokens, keep.n_sink + keep.n_recent), n_tokens);
}

std::vector<std::vector<std::int64_t>> select_tokens(std::span<const KeepBudget> budgets,
                                                     std::span<const TokenScores> heads) {
  require(budgets.size() == heads.size(), "select_tokens: a budget for each head");
  if (heads.empty()) return {};
  std::vector<std::vector<double>> scores;
  for (std::size_t i = 0; i < heads.size(); ++i) scores.push_back(scores_of(budgets[i], heads[i]));
  const KeepBudget& keep = budgets.front();
  const std::int64_t budget = chosen_of(keep, heads.front().n_tokens);
  if (keep.select != SelectAmong::kHead) {
    require_equal_heads(budgets, heads);
    if (budget == heads.front().n_tokens) return Kept(heads.size(), all_of(budget));
    return keep.select == SelectAmong::kLayerAlike ? alike(scores, budget)
                                                   : shared(scores, budget, keep.head_floor);
  }
  Kept kept;
  for (std::size_t i = 0; i < heads.size(); ++i)
    kept.push_back(best(scores[i], chosen_of(budgets[i], heads[i].n_tokens)));
  return kept;
}

}  // namespace longhaul
