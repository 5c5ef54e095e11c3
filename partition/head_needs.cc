#include "partition/head_needs.h"

#include <algorithm>

#include "partition/scratch_memory.h"

namespace longhaul {
namespace {

BesideBlocks beside_blocks(const HeadTable& heads, LayerId layer, const ModelSpec& spec,
                           const Workload& workload) {
  BesideBlocks all;
  const std::int64_t of_open = open_bytes_of_head(workload.kv(spec), workload);
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
    const HeadPolicy& policy = heads.at(layer, kv_head);
    BesideBlocks head{.of_heads = of_open + bytes_beside_head(policy, spec, workload)};
    if (heads.window(layer, kv_head).is_unlimited()) {
      const Gathered gathered = gathered_of(policy, workload);
      head.of_block = std::max(bytes_beside_block(policy, spec, workload),
                               bytes_beside_gathered(policy, workload));
      head.most_gathered = gathered.n_times * gathered.most_blocks;
      head.n_times = gathered.n_times;
    }
    all.add(head);
  }
  return all;
}

}  // namespace

void BesideBlocks::add(const BesideBlocks& other) {
  of_block = std::max(of_block, other.of_block);
  of_heads += other.of_heads;
  most_gathered += other.most_gathered;
  n_times = std::max(n_times, other.n_times);
}

HeadNeeds::HeadNeeds(const HeadTable& table, const ModelSpec& spec, const ClusterSpec& cluster,
                     const Workload& workload) {
  for (const LayerId layer : IdRange<LayerId>(table.n_layers())) {
    heads.push_back(layer_heads(table, layer));
    beside.push_back(beside_blocks(table, layer, spec, workload));
    choice.push_back(layer_choice(table, layer, spec, workload));
  }
  const auto gpu = std::find_if(cluster.ranks.begin(), cluster.ranks.end(),
                                [](const RankSpec& rank) { return rank.device == Device::kCuda; });
  if (gpu != cluster.ranks.end()) scratch = scratch_bytes(*gpu, spec, table, workload);
}

std::int64_t open_bytes_of_head(const KvFormat& kv, const Workload& workload) {
  const std::int64_t of_fork = 1 + ceil_div(workload.n_guesses, workload.block_size);
  return (1 + workload.n_sequences * of_fork) * kv.open_block_bytes();
}

}  // namespace longhaul
