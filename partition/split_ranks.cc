#include "partition/split_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "partition/apportion.h"
#include "partition/plan.h"

namespace longhaul {
namespace {

// The index in [begin, end] whose cumulative speed is nearest to `target`, among those allowed.
template <typename Allowed>
std::optional<std::size_t> nearest_cut(const std::vector<double>& cumulative, double target,
                                       std::size_t begin, std::size_t end, const Allowed& allowed) {
  std::optional<std::size_t> best;
  for (std::size_t i = begin; i <= end; ++i) {
    if (!allowed(i)) continue;
    if (!best || std::abs(cumulative[i] - target) < std::abs(cumulative[*best] - target)) best = i;
  }
  return best;
}

}  // namespace

std::vector<Rank> ranks_by_host(const ClusterSpec& cluster) {
  std::map<std::string_view, std::size_t> first_rank;
  for (std::size_t i = 0; i < cluster.ranks.size(); ++i)
    first_rank.emplace(cluster.ranks[i].host, i);
  std::vector<std::pair<std::size_t, Rank>> ranks;
  for (std::size_t i = 0; i < cluster.ranks.size(); ++i) {
    ranks.emplace_back(first_rank[cluster.ranks[i].host], Rank{static_cast<std::int64_t>(i)});
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<Rank> order;
  for (const auto& [host, rank] : ranks) order.push_back(rank);
  return order;
}

double total_gflops(const ClusterSpec& cluster, std::span<const Rank> ranks) {
  double sum = 0;
  for (const Rank rank : ranks) sum += cluster.rank(rank).gflops;
  return sum;
}

std::vector<std::vector<Rank>> split_by_speed(const ClusterSpec& cluster,
                                              std::span<const Rank> ranks, std::int64_t n_groups,
                                              std::int64_t min_size) {
  const auto n = static_cast<std::size_t>(n_groups);
  const auto least = static_cast<std::size_t>(min_size);
  require(n_groups > 0 && n * least <= ranks.size(), "split_by_speed: too few ranks");
  std::vector<double> cumulative = {0.0};
  for (const Rank rank : ranks) cumulative.push_back(cumulative.back() + cluster.rank(rank).gflops);
  const double group = cumulative.back() / static_cast<double>(n_groups);
  const double near = group * 0.1251;  // an eighth, however it was rounded

  std::vector<std::vector<Rank>> groups;
  std::size_t begin = 0;
  for (std::size_t g = 1; g <= n; ++g) {
    const std::size_t first = begin + least;
    const std::size_t last = ranks.size() - (n - g) * least;  // leaves enough for later groups
    const double target = group * static_cast<double>(g);
    // No cut that matters lies beyond the first one past the target by an eighth of a group.
    const auto past = static_cast<std::size_t>(
        std::upper_bound(cumulative.begin(), cumulative.end(), target + near) - cumulative.begin());
    const std::size_t end = g == n ? last : std::clamp(past, first, last);
    const auto host_edge = [&](std::size_t i) {
      return i == ranks.size() || cluster.rank(ranks[i - 1]).host != cluster.rank(ranks[i]).host;
    };
    const auto any = [](std::size_t) { return true; };
    std::size_t cut = g == n ? last : *nearest_cut(cumulative, target, first, end, any);
    const auto edge =
        g == n ? std::nullopt : nearest_cut(cumulative, target, first, end, host_edge);
    if (edge && std::abs(cumulative[*edge] - target) <= near) cut = *edge;
    groups.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(begin),
                        ranks.begin() + static_cast<std::ptrdiff_t>(cut));
    begin = cut;
  }
  return groups;
}

IndexedVector<RingPos, std::int64_t> token_shares(const ClusterSpec& cluster,
                                                  const IndexedVector<RingPos, Rank>& ring) {
  std::vector<double> speeds;
  for (const Rank rank : ring) speeds.push_back(cluster.rank(rank).gflops);
  return IndexedVector<RingPos, std::int64_t>(apportion(Stage::kTokenShareTotal, speeds));
}

}  // namespace longhaul
