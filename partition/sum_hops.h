// Heads that keep a key for what their windows have left behind (Rest, kernels/compensate.h), in
// prefill: who hands on to whom the sums of what is gone. The first query of a slab begins with the
// sums that the last one of the slab before ended with, so they go from slab to slab in the order
// of tokens: first out of the head's home, in the end back to it. Every sum is made by the same
// additions as on one rank. What goes during a slab's queries is among the keys that these see
// (partition/window_pieces.h), so nothing else travels for it.
//
// 2 ranks, chunk [40, 56), home at position 1:
//   slab    0: [40,44) rank 0   1: [44,48) rank 1   2: [48,52) rank 1   3: [52,56) rank 0
//   hops    1 -> 0 for 40       0 -> 1 for 44                           1 -> 0 for 52
//           0 -> 1 for 56, home
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/head_policy.h"
#include "partition/slabs.h"

namespace longhaul {

struct SumHop {
  RingPos from{0};
  RingPos to{0};
  std::int64_t position = 0;        // of the query that the sums are for: a slab's first, or the
                                    // next chunk's
  std::vector<std::int64_t> heads;  // indices in home_positions, ascending
  bool operator==(const SumHop&) const = default;
};

// In the order in which they are made; none for a query for which nothing is gone.
// home_positions[i] is the ring position of head i's home. Local, pure.
std::vector<SumHop> sum_hops(std::span<const Slab> slabs, const KeyWindow& window,
                             std::span<const RingPos> home_positions);

// Doubles that travel for each head: sums of keys and of values.
constexpr std::int64_t sums_of_head(std::int64_t head_dim) { return 2 * head_dim; }

// Bytes that each ring position of n_ranks sends.
IndexedVector<RingPos, std::int64_t> sum_bytes_sent(std::span<const SumHop> hops,
                                                    std::int64_t n_ranks, std::int64_t head_dim);

}  // namespace longhaul
