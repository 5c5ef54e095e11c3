#include "partition/transfer_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/device/gpu_memory.h"
#include "base/device/landing_memory.h"

namespace longhaul {
namespace {

// Of each rank of a group with one communicator. Gathering takes as much as reaching one more rank.
std::int64_t bytes_of_group(const ClusterSpec& cluster, std::span<const Rank> ranks) {
  if (!may_use_nccl(cluster, ranks)) return 0;
  std::map<std::string_view, std::int64_t> n_on_host;
  std::int64_t most = 0;
  for (const Rank rank : ranks) most = std::max(most, ++n_on_host[cluster.rank(rank).host]);
  return static_cast<std::int64_t>(ranks.size()) * 2 * kTransferThreadBlocks *
             kTransferBufferBytes +
         (most - 1) * kLandingSlots * kLandingSlotBytes;
}

}  // namespace

bool may_use_nccl(const ClusterSpec& cluster, std::span<const Rank> ranks) {
  if (ranks.size() < 2) return false;
  std::set<std::pair<std::string_view, int>> gpus;
  for (const Rank number : ranks) {
    const RankSpec& rank = cluster.rank(number);
    if (rank.device == Device::kCpu || !gpus.emplace(rank.host, rank.gpu).second) return false;
  }
  return true;
}

std::vector<std::int64_t> transfer_bytes(const ClusterSpec& cluster,
                                         std::span<const std::vector<Rank>> rings) {
  std::vector<std::int64_t> bytes;
  for (const auto& ring : rings) bytes.push_back(bytes_of_group(cluster, ring));
  for (std::size_t s = 1; s < rings.size(); ++s) {
    std::vector<Rank> both = rings[s - 1];
    both.insert(both.end(), rings[s].begin(), rings[s].end());
    const std::int64_t of_link = bytes_of_group(cluster, both);
    bytes[s - 1] += of_link;
    bytes[s] += of_link;
  }
  return bytes;
}

}  // namespace longhaul
