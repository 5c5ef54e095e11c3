#include "partition/sum_hops.h"

#include <algorithm>

namespace longhaul {
namespace {

// A hop for each rank that is home of some heads, between it and `other`.
enum class Direction { kFromHome, kToHome };
void add_home_hops(std::span<const RingPos> home_positions, RingPos other, std::int64_t position,
                   Direction direction, std::vector<SumHop>& hops) {
  std::vector<RingPos> homes(home_positions.begin(), home_positions.end());
  std::sort(homes.begin(), homes.end());
  homes.erase(std::unique(homes.begin(), homes.end()), homes.end());
  for (const RingPos home : homes) {
    if (home == other) continue;
    SumHop hop{.from = home, .to = other, .position = position, .heads = {}};
    if (direction == Direction::kToHome) std::swap(hop.from, hop.to);
    for (std::size_t i = 0; i < home_positions.size(); ++i) {
      if (home_positions[i] == home) hop.heads.push_back(static_cast<std::int64_t>(i));
    }
    hops.push_back(std::move(hop));
  }
}

}  // namespace

std::vector<SumHop> sum_hops(std::span<const Slab> slabs, const KeyWindow& window,
                             std::span<const RingPos> home_positions) {
  std::vector<SumHop> hops;
  if (home_positions.empty()) return hops;
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < home_positions.size(); ++i)
    all.push_back(static_cast<std::int64_t>(i));
  const Slab* before = nullptr;
  for (const Slab& slab : slabs) {
    if (slab.tokens.empty()) continue;
    const std::int64_t position = slab.tokens.begin;
    if (window.n_gone(position) > 0) {
      if (before == nullptr) {
        add_home_hops(home_positions, slab.owner, position, Direction::kFromHome, hops);
      } else if (before->owner != slab.owner) {
        hops.push_back(
            {.from = before->owner, .to = slab.owner, .position = position, .heads = all});
      }
    }
    before = &slab;
  }
  const std::int64_t end = slabs.back().tokens.end;
  if (before != nullptr && window.n_gone(end) > 0)
    add_home_hops(home_positions, before->owner, end, Direction::kToHome, hops);
  return hops;
}

IndexedVector<RingPos, std::int64_t> sum_bytes_sent(std::span<const SumHop> hops,
                                                    std::int64_t n_ranks, std::int64_t head_dim) {
  IndexedVector<RingPos, std::int64_t> sent(static_cast<std::size_t>(n_ranks), 0);
  for (const SumHop& hop : hops) {
    sent[hop.from] += static_cast<std::int64_t>(hop.heads.size()) * sums_of_head(head_dim) *
                      static_cast<std::int64_t>(sizeof(double));
  }
  return sent;
}

}  // namespace longhaul
