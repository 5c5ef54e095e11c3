#include "partition/apportion.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace longhaul {
namespace {

// Rounds exact shares, whose sum is about `total`, to whole numbers with that very sum: down first,
// then one more each in order of the fractions.
std::vector<std::int64_t> round_shares(std::int64_t total, std::span<const double> exact,
                                       std::span<const std::int64_t> limits) {
  const std::size_t n = exact.size();
  const auto limit = [&](std::size_t i) {
    return limits.empty() ? std::numeric_limits<std::int64_t>::max() : limits[i];
  };
  std::vector<std::int64_t> parts(n);
  std::int64_t left = total;
  for (std::size_t i = 0; i < n; ++i) {
    const auto whole = static_cast<std::int64_t>(std::max(0.0, exact[i]));
    parts[i] = std::min({whole, limit(i), left});
    left -= parts[i];
  }
  if (left == 0) return parts;
  std::vector<double> fractions;
  for (const double share : exact) fractions.push_back(share - std::floor(share));
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto comes_first = [&](std::size_t a, std::size_t b) {
    return fractions[a] > fractions[b];
  };
  // Of equal ranks, which may be a hundred thousand, it is sorted already.
  if (!std::is_sorted(order.begin(), order.end(), comes_first))
    std::stable_sort(order.begin(), order.end(), comes_first);
  // Nothing for those whose share is exactly none, unless nobody else has room.
  for (const bool also_zero : {false, true}) {
    while (left > 0) {
      const std::int64_t before = left;
      for (const std::size_t i : order) {
        if (left == 0) break;
        if (parts[i] >= limit(i) || (!also_zero && exact[i] <= 0)) continue;
        ++parts[i];
        --left;
      }
      if (left == before) break;
    }
  }
  require(left == 0, "apportion: more to give than all limits allow");
  return parts;
}

}  // namespace

std::vector<std::int64_t> apportion(std::int64_t total, std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  require(sum > 0 || total == 0, "apportion: all weights are 0");
  std::vector<double> exact(weights.size(), 0.0);
  for (std::size_t i = 0; i < weights.size() && total > 0; ++i) {
    exact[i] = static_cast<double>(total) * (weights[i] / sum);
  }
  return round_shares(total, exact, {});
}

std::vector<std::int64_t> apportion_within(std::int64_t total, std::span<const double> weights,
                                           std::span<const std::int64_t> limits) {
  const std::size_t n = weights.size();
  // Fill in the order in which parts become full as the common level rises.
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto full_at = [&](std::size_t i) { return static_cast<double>(limits[i]) / weights[i]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return full_at(a) < full_at(b); });
  double weight_left = std::accumulate(weights.begin(), weights.end(), 0.0);
  auto left = static_cast<double>(total);
  std::vector<double> exact(n, 0.0);
  for (const std::size_t i : order) {
    const double share = weight_left > 0 ? left * (weights[i] / weight_left) : 0;
    exact[i] = std::clamp(share, 0.0, static_cast<double>(limits[i]));
    left -= exact[i];
    weight_left -= weights[i];
  }
  return round_shares(total, exact, limits);
}

std::vector<std::int64_t> apportion_level(std::int64_t total, std::span<const double> base,
                                          double unit, std::span<const double> speed) {
  const std::size_t n = base.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return base[a] / speed[a] < base[b] / speed[b];
  });
  // The level is a time. With the k least busy under it: total * unit = sum(level * speed - base).
  double speeds = 0;
  double bases = 0;
  double level = 0;
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = order[k];
    if (k > 0 && base[i] / speed[i] >= level) break;
    speeds += speed[i];
    bases += base[i];
    level = (static_cast<double>(total) * unit + bases) / speeds;
  }
  std::vector<double> exact(n);
  for (std::size_t i = 0; i < n; ++i) {
    exact[i] = std::max(0.0, (level * speed[i] - base[i]) / unit);
  }
  return round_shares(total, exact, {});
}

}  // namespace longhaul
