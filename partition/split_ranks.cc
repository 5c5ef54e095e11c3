#include "partition/split_ranks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

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

// A ring's slowest link, all of them together, and all but the one from its end to its begin, which
// stages do not have: the greater, the better.
std::array<double, 3> ring_speed(const ClusterSpec& cluster,
                                 const std::vector<std::string_view>& hosts) {
  double slowest = std::numeric_limits<double>::max();
  double sum = 0;
  double last = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    last = cluster.wire(hosts[i], hosts[(i + 1) % hosts.size()]).gb_per_s;
    slowest = std::min(slowest, last);
    sum += last;
  }
  return {slowest, sum, sum - last};
}

// So that neighbours have fast links: of few hosts the best ring, of many each beside the one of
// those left that it has the fastest link to. Where links are equal, hosts stay as they are.
void order_by_distance(const ClusterSpec& cluster, std::vector<std::string_view>& hosts) {
  constexpr std::size_t kMostForAllOrders = 8;
  if (cluster.host_links.empty() || hosts.size() < 3) return;
  if (hosts.size() > kMostForAllOrders) {
    for (std::size_t i = 1; i + 1 < hosts.size(); ++i) {
      const auto speed = [&](std::string_view other) {
        return cluster.wire(hosts[i - 1], other).gb_per_s;
      };
      const auto left = hosts.begin() + static_cast<std::ptrdiff_t>(i);
      const auto best =
          std::max_element(left, hosts.end(), [&](auto a, auto b) { return speed(a) < speed(b); });
      std::rotate(left, best, best + 1);
    }
    return;
  }
  std::vector<std::size_t> order(hosts.size() - 1);  // of those behind the first
  std::iota(order.begin(), order.end(), std::size_t{1});
  std::vector<std::string_view> best = hosts;
  std::vector<std::string_view> tried = hosts;
  auto best_speed = ring_speed(cluster, hosts);
  while (std::next_permutation(order.begin(), order.end())) {
    for (std::size_t i = 0; i < order.size(); ++i) tried[i + 1] = hosts[order[i]];
    const auto speed = ring_speed(cluster, tried);
    if (speed <= best_speed) continue;
    best = tried;
    best_speed = speed;
  }
  hosts = std::move(best);
}

}  // namespace

std::vector<Rank> ranks_by_host(const ClusterSpec& cluster) {
  std::vector<std::string_view> hosts;
  std::map<std::string_view, std::size_t> place;
  for (const RankSpec& rank : cluster.ranks) {
    if (place.emplace(rank.host, 0).second) hosts.push_back(rank.host);
  }
  order_by_distance(cluster, hosts);
  for (std::size_t i = 0; i < hosts.size(); ++i) place[hosts[i]] = i;
  std::vector<std::pair<std::size_t, Rank>> ranks;
  for (std::size_t i = 0; i < cluster.ranks.size(); ++i) {
    ranks.emplace_back(place[cluster.ranks[i].host], Rank{static_cast<std::int64_t>(i)});
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
