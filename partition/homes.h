// Where the blocks of one (layer, KV head) live: ranks with weights, and the rule that gives block
// b to one of them. The rule depends on nothing but the weights, so every rank computes it alone.
//
// The list of ranks is halved again and again. Of the first n blocks, the left half with weight L
// of W gets floor((n L + W / 2) / W); the rest goes right; and so on inside each half with the
// halves' own counts. So any prefix of blocks is spread in proportion to the weights (each halving
// adds less than one block of error), and a prefix of exactly W blocks gives every rank exactly its
// weight. Example, weights 2, 1, 1:   block 0 1 2 3 4 5 6 7   ->   rank 0 1 0 2 0 1 0 2
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace longhaul {

struct HomeShare {
  Rank rank;
  std::int64_t weight = 0;  // > 0
  bool operator==(const HomeShare&) const = default;
};

struct Home {
  // At most this large in sum, so that no product overflows for up to 2^31 blocks.
  static constexpr std::int64_t kMaxWeight = std::int64_t{1} << 31;
  std::vector<HomeShare> shares;  // different ranks; one entry for a streaming head
  bool operator==(const Home&) const = default;
};

// Which entry of home.shares stores block `block` (position / block_size). Local, pure.
std::size_t share_of_block(const Home& home, std::int64_t block);
// And its rank.
inline Rank home_of_block(const Home& home, std::int64_t block) {
  return home.shares[share_of_block(home, block)].rank;
}

// How many of the blocks [0, n_blocks) each entry of home.shares stores.
std::vector<std::int64_t> blocks_by_share(const Home& home, std::int64_t n_blocks);
// The same for one rank; 0 for a rank that is no home.
std::int64_t blocks_at(const Home& home, Rank rank, std::int64_t n_blocks);

// For each entry of home.shares, a bound on how many of any n consecutive blocks it stores.
std::vector<std::int64_t> max_blocks_in_window(const Home& home, std::int64_t n);

}  // namespace longhaul
