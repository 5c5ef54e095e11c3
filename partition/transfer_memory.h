// What exchanging without hosts takes of GPUs. Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "partition/cluster_spec.h"

namespace longhaul {

// Whether these ranks may exchange by NCCL: several, each on a GPU of its own. Others exchange
// through hosts, and so do these where its library is missing, which is not known here.
bool may_use_nccl(const ClusterSpec& cluster, std::span<const Rank> ranks);

// `rings` are those of a replica's stages. For each stage, what NCCL takes of every one of its
// ranks' GPUs to reach its ring, and the ranks of it and of a neighbouring stage together; and copy
// engines, for the host with most of these ranks. Copy engines have their room whether or not they
// are used: the same plans can be run both ways.
std::vector<std::int64_t> transfer_bytes(const ClusterSpec& cluster,
                                         std::span<const std::vector<Rank>> rings);

}  // namespace longhaul
