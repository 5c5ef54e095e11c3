#include "partition/homes.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace longhaul {
namespace {

// Sums of weights: cumulative[i] is that of the first i entries.
std::vector<std::int64_t> cumulative_weights(const Home& home) {
  require(!home.shares.empty(), "a head has no home");
  std::vector<std::int64_t> cumulative(home.shares.size() + 1, 0);
  for (std::size_t i = 0; i < home.shares.size(); ++i) {
    cumulative[i + 1] = cumulative[i] + home.shares[i].weight;
  }
  return cumulative;
}

// Of the first n blocks of a part with weight `whole`, those of its left half with weight `left`.
std::int64_t left_count(std::int64_t n, std::int64_t left, std::int64_t whole) {
  return (n * left + whole / 2) / whole;
}

// Calls split(n, left weight, whole weight) -> {left n, right n} down the halving of entries
// [begin, end) and stores what reaches each entry in counts.
template <typename Split>
void halve(const std::vector<std::int64_t>& cumulative, std::size_t begin, std::size_t end,
           std::int64_t n, const Split& split, std::vector<std::int64_t>& counts) {
  if (end - begin == 1) {
    counts[begin] = n;
    return;
  }
  const std::size_t middle = begin + (end - begin) / 2;
  const auto [left, right] =
      split(n, cumulative[middle] - cumulative[begin], cumulative[end] - cumulative[begin]);
  halve(cumulative, begin, middle, left, split, counts);
  halve(cumulative, middle, end, right, split, counts);
}

struct Halves {
  std::int64_t left;
  std::int64_t right;
};

}  // namespace

std::size_t share_of_block(const Home& home, std::int64_t block) {
  if (home.shares.size() == 1) return 0;
  const auto cumulative = cumulative_weights(home);
  std::size_t begin = 0;
  std::size_t end = home.shares.size();
  while (end - begin > 1) {
    const std::size_t middle = begin + (end - begin) / 2;
    const std::int64_t left_weight = cumulative[middle] - cumulative[begin];
    const std::int64_t whole = cumulative[end] - cumulative[begin];
    const std::int64_t before = left_count(block, left_weight, whole);
    if (left_count(block + 1, left_weight, whole) > before) {
      end = middle;
      block = before;
    } else {
      begin = middle;
      block -= before;
    }
  }
  return begin;
}

std::vector<std::int64_t> blocks_by_share(const Home& home, std::int64_t n_blocks) {
  std::vector<std::int64_t> counts(home.shares.size());
  halve(
      cumulative_weights(home), 0, home.shares.size(), n_blocks,
      [](std::int64_t n, std::int64_t left, std::int64_t whole) {
        const std::int64_t count = left_count(n, left, whole);
        return Halves{count, n - count};
      },
      counts);
  return counts;
}

std::int64_t blocks_at(const Home& home, Rank rank, std::int64_t n_blocks) {
  const auto found = std::find_if(home.shares.begin(), home.shares.end(),
                                  [&](const HomeShare& share) { return share.rank == rank; });
  if (found == home.shares.end()) return 0;
  return blocks_by_share(home, n_blocks)[static_cast<std::size_t>(found - home.shares.begin())];
}

std::vector<std::int64_t> max_blocks_in_window(const Home& home, std::int64_t n) {
  // A difference of floors over n steps of slope L / W is at most ceil(n L / W).
  std::vector<std::int64_t> counts(home.shares.size());
  halve(
      cumulative_weights(home), 0, home.shares.size(), n,
      [](std::int64_t window, std::int64_t left, std::int64_t whole) {
        return Halves{ceil_div(window * left, whole), ceil_div(window * (whole - left), whole)};
      },
      counts);
  return counts;
}

}  // namespace longhaul
