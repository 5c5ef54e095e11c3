#include "partition/stage_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "model/heads/kept_blocks.h"
#include "partition/apportion.h"
#include "partition/split_ranks.h"
#include "partition/transfer_memory.h"
#include "partition/weight_bytes.h"

namespace longhaul {

StagePlanner::StagePlanner(const PlanRequest& request)
    : request_(request), needs_(request.heads, request.spec, request.cluster, request.workload) {
  for (const LayerHeads& heads : needs_.heads) {
    demand_.push_back({.heads = heads,
                       .windowed_blocks = heads.n_windowed == 0
                                              ? 0
                                              : windowed_blocks(heads.window, request.workload)});
  }
}

std::vector<StageLayout> StagePlanner::by_speed(std::span<const Rank> ranks,
                                                std::int64_t n_stages) const {
  const ClusterSpec& cluster = request_.cluster;
  const auto groups = split_by_speed(cluster, ranks, n_stages);
  std::vector<double> speeds;
  for (const auto& group : groups) speeds.push_back(total_gflops(cluster, group));
  // One layer each, the others by speed.
  const auto more = apportion(request_.spec.n_layers - n_stages, speeds);
  const std::vector<std::int64_t> transfers = transfer_bytes(cluster, groups);
  std::vector<StageLayout> stages;
  std::int64_t begin = 0;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    const std::int64_t end = begin + 1 + more[s];
    const IndexedVector<RingPos, Rank> ring(groups[s]);
    stages.push_back({.ring = ring,
                      .token_share = token_shares(cluster, ring),
                      .layers = {begin, end},
                      .transfer_bytes = transfers[s]});
    begin = end;
  }
  return stages;
}

std::optional<std::vector<StageLayout>> StagePlanner::that_fits(std::span<const Rank> ranks,
                                                                std::int64_t n_stages) const {
  std::vector<StageLayout> stages = by_speed(ranks, n_stages);
  const bool as_wanted = std::all_of(stages.begin(), stages.end(), [&](const StageLayout& stage) {
    return fits(stage, stage.layers);
  });
  if (as_wanted) return stages;
  return with_moved_layers(std::move(stages));
}

std::optional<std::vector<StageLayout>> StagePlanner::with_moved_layers(
    std::vector<StageLayout> stages) const {
  const std::int64_t n_layers = request_.spec.n_layers;
  const auto n_stages = static_cast<std::int64_t>(stages.size());
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  // far[s][b]: with begin b, stage s fits with every end up to here (more layers never fit better);
  // covers[s][b]: stages s, s + 1, ... can hold the layers [b, n_layers).
  std::vector<std::vector<std::int64_t>> far(at(n_stages));
  std::vector<std::vector<bool>> covers(at(n_stages + 1), std::vector<bool>(at(n_layers + 1)));
  covers.back()[at(n_layers)] = true;
  for (std::int64_t s = n_stages - 1; s >= 0; --s) {
    far[at(s)].assign(at(n_layers + 1), 0);
    const std::int64_t least = s;  // stages before need a layer each
    const std::int64_t most = n_layers - (n_stages - s);
    std::int64_t end = most + 1;
    bool any = false;
    for (std::int64_t begin = most; begin >= least; --begin) {
      while (end > begin && !fits(stages[at(s)], {begin, end})) --end;
      far[at(s)][at(begin)] = end;
      bool covered = false;
      for (std::int64_t e = begin + 1; e <= end; ++e) covered = covered || covers[at(s + 1)][at(e)];
      covers[at(s)][at(begin)] = covered;
      any = any || covered;
    }
    if (!any) return std::nullopt;
  }
  if (!covers[0][0]) return std::nullopt;
  // Of all ways, the one whose cuts stay nearest to the wanted ones.
  std::int64_t begin = 0;
  for (std::int64_t s = 0; s < n_stages; ++s) {
    const std::int64_t wanted = stages[at(s)].layers.end;
    std::int64_t best = -1;
    for (std::int64_t end = begin + 1; end <= far[at(s)][at(begin)]; ++end) {
      if (!covers[at(s + 1)][at(end)]) continue;
      if (best < 0 || std::abs(end - wanted) < std::abs(best - wanted)) best = end;
    }
    stages[at(s)].layers = {begin, best};
    begin = best;
  }
  return stages;
}

bool StagePlanner::fits(const StageLayout& stage, Extent layers) const {
  PlacementArgs args;
  args.room = room(stage, layers);
  args.layers.assign(demand_.begin() + layers.begin, demand_.begin() + layers.end);
  args.document_blocks = request_.workload.document_blocks();
  args.tail_blocks = request_.workload.tail_blocks();
  args.n_sequences = request_.workload.n_sequences;
  args.whole_heads = request_.workload.reproducible;
  return heads_fit(args);
}

IndexedVector<RingPos, std::int64_t> StagePlanner::room(const StageLayout& stage,
                                                        Extent layers) const {
  const ModelSpec& spec = request_.spec;
  const Workload& workload = request_.workload;
  const StageSize size = stage_size(spec, needs_, workload, layers, stage.ring.n());
  const std::int64_t largest =
      *std::max_element(stage.token_share.begin(), stage.token_share.end());
  const std::int64_t ring_buffers = ring_buffer_bytes(spec, workload, size, largest);
  const KvFormat kv = workload.kv(spec);
  IndexedVector<RingPos, std::int64_t> room(stage.ring.size());
  for (const RingPos i : stage.ring.ids()) {
    const std::int64_t fixed = size.weights + ring_buffers + stage.transfer_bytes +
                               activation_bytes(spec, workload, size, i, stage.token_share[i]) +
                               working_bytes(request_.cluster.rank(stage.ring[i]), size);
    const std::int64_t left = request_.cluster.usable_bytes(stage.ring[i]) - fixed;
    room[i] = left < 0 ? -1 : room_for_blocks(size.beside, kv, left);
  }
  return room;
}

PlacementArgs StagePlanner::placement_args(const StageLayout& stage) const {
  const ModelSpec& spec = request_.spec;
  PlacementArgs args;
  args.ring = stage.ring;
  args.room = room(stage, stage.layers);
  for (const Rank rank : stage.ring) {
    args.read_speed.push_back(request_.cluster.rank(rank).memory_gb_per_s);
  }
  args.layers.assign(demand_.begin() + stage.layers.begin, demand_.begin() + stage.layers.end);
  args.document_blocks = request_.workload.document_blocks();
  args.tail_blocks = request_.workload.tail_blocks();
  args.n_sequences = request_.workload.n_sequences;
  args.whole_heads = request_.workload.reproducible;
  const DType dtype = request_.workload.weights(spec);
  const std::int64_t q_rows = spec.gqa_group() * spec.head_dim;
  args.blocks_read_per_head = static_cast<double>(matrix_bytes(q_rows, spec.d_model, dtype) +
                                                  matrix_bytes(spec.d_model, q_rows, dtype)) /
                              static_cast<double>(request_.workload.kv(spec).block_bytes());
  return args;
}

}  // namespace longhaul
