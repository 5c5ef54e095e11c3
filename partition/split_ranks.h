// Cutting a list of ranks into consecutive groups of about equal speed: replicas, and stages of a
// replica. Ranks of one host stay together where that costs little balance. Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "partition/cluster_spec.h"

namespace longhaul {

// All ranks, those of a host beside each other; hosts in the order of their first rank, or, where
// some links are slower than others, so that neighbours have fast ones.
std::vector<Rank> ranks_by_host(const ClusterSpec& cluster);

// n_groups groups of at least min_size ranks each (so many there must be). A cut moves to a host's
// edge when that lies within an eighth of a group of the even cut.
std::vector<std::vector<Rank>> split_by_speed(const ClusterSpec& cluster,
                                              std::span<const Rank> ranks, std::int64_t n_groups,
                                              std::int64_t min_size = 1);

double total_gflops(const ClusterSpec& cluster, std::span<const Rank> ranks);

// Token shares in proportion to speed; they sum to Stage::kTokenShareTotal.
IndexedVector<RingPos, std::int64_t> token_shares(const ClusterSpec& cluster,
                                                  const IndexedVector<RingPos, Rank>& ring);

}  // namespace longhaul
