// Splitting whole numbers fairly: by weights, within limits, or so that loads come out level. All
// deterministic: equal claims go to the lower index. Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

// Parts of `total` in proportion to `weights` (not negative, not all 0), by largest remainder: each
// part is within one of its exact share.
std::vector<std::int64_t> apportion(std::int64_t total, std::span<const double> weights);

// The same with an upper limit for each part; what a full part cannot take goes to the others in
// proportion to their weights. Needs sum(limits) >= total; weights > 0.
std::vector<std::int64_t> apportion_within(std::int64_t total, std::span<const double> weights,
                                           std::span<const std::int64_t> limits);

// Parts of `total` units so that (base[i] + part[i] * unit) / speed[i] is as level as possible:
// who carries much already gets less, down to nothing.
std::vector<std::int64_t> apportion_level(std::int64_t total, std::span<const double> base,
                                          double unit, std::span<const double> speed);

}  // namespace longhaul
