#include "partition/stage_layout.h"

#include <algorithm>
#include <cstddef>

#include "partition/apportion.h"
#include "partition/decode_reads.h"
#include "partition/kept_keys.h"
#include "partition/split_ranks.h"
#include "partition/weight_bytes.h"

namespace longhaul {
namespace {

LayerDemand layer_demand(const PlanRequest& request, std::int64_t layer) {
  LayerDemand demand;
  for (std::int64_t kv_head = 0; kv_head < request.spec.n_kv_heads; ++kv_head) {
    const KeptKeys kept = kept_keys(request.spec, request.roles, layer, kv_head);
    demand.keeps_all.push_back(kept.all);
    ++(kept.all ? demand.n_all : demand.n_windowed);
    if (!kept.all) demand.windowed_blocks = windowed_blocks(kept, request.workload);
  }
  return demand;
}

bool stage_fits(const PlanRequest& request, StageLayout& stage, Extent layers) {
  stage.layers = layers;
  return heads_fit(placement_args(request, stage));
}

// The furthest end <= most such that layers [begin, end) fit; begin when none do. More layers never
// fit better, so halving finds it.
std::int64_t furthest_end(const PlanRequest& request, StageLayout& stage, std::int64_t begin,
                          std::int64_t most) {
  std::int64_t fits = begin;
  std::int64_t too_far = most + 1;
  while (too_far - fits > 1) {
    const std::int64_t middle = fits + (too_far - fits) / 2;
    (stage_fits(request, stage, {begin, middle}) ? fits : too_far) = middle;
  }
  return fits;
}

// The same from behind: the lowest begin >= least such that [begin, end) fit; end when none do.
std::int64_t lowest_begin(const PlanRequest& request, StageLayout& stage, std::int64_t end,
                          std::int64_t least) {
  std::int64_t fits = end;
  std::int64_t too_low = least - 1;
  while (fits - too_low > 1) {
    const std::int64_t middle = too_low + (fits - too_low) / 2;
    (stage_fits(request, stage, {middle, end}) ? fits : too_low) = middle;
  }
  return fits;
}

}  // namespace

std::vector<StageLayout> layout_by_speed(const PlanRequest& request, std::span<const Rank> ranks,
                                         std::int64_t n_stages) {
  const auto groups = split_by_speed(request.cluster, ranks, n_stages);
  std::vector<double> speeds;
  for (const auto& group : groups) speeds.push_back(total_gflops(request.cluster, group));
  // One layer each, the others by speed.
  const auto more = apportion(request.spec.n_layers - n_stages, speeds);
  std::vector<StageLayout> stages;
  std::int64_t begin = 0;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    const std::int64_t end = begin + 1 + more[s];
    stages.push_back({.ring = groups[s],
                      .token_share = token_shares(request.cluster, groups[s]),
                      .layers = {begin, end}});
    begin = end;
  }
  return stages;
}

std::optional<std::vector<StageLayout>> layout_that_fits(const PlanRequest& request,
                                                         std::span<const Rank> ranks,
                                                         std::int64_t n_stages) {
  std::vector<StageLayout> stages = layout_by_speed(request, ranks, n_stages);
  const std::size_t n = stages.size();
  std::vector<std::int64_t> wanted_end;
  for (const StageLayout& stage : stages) wanted_end.push_back(stage.layers.end);
  const bool as_wanted = std::all_of(stages.begin(), stages.end(), [&](StageLayout& stage) {
    return stage_fits(request, stage, stage.layers);
  });
  if (as_wanted) return stages;

  // least_begin[s]: where stage s may begin at the earliest, so that it and all after it hold the
  // rest of the layers.
  std::vector<std::int64_t> least_begin(n + 1, request.spec.n_layers);
  for (std::size_t s = n; s-- > 0;) {
    const auto before = static_cast<std::int64_t>(s);  // at least one layer for each stage before
    least_begin[s] = lowest_begin(request, stages[s], least_begin[s + 1], before);
    if (least_begin[s] == least_begin[s + 1]) return std::nullopt;
  }
  if (least_begin[0] > 0) return std::nullopt;
  // As near to the wanted ends as what is before and after allows.
  std::int64_t begin = 0;
  for (std::size_t s = 0; s < n; ++s) {
    const auto after = static_cast<std::int64_t>(n - s - 1);
    const std::int64_t most =
        furthest_end(request, stages[s], begin, request.spec.n_layers - after);
    const std::int64_t least = std::max(least_begin[s + 1], begin + 1);
    if (most < least) break;
    stages[s].layers = {begin, std::clamp(wanted_end[s], least, most)};
    begin = stages[s].layers.end;
  }
  if (begin == request.spec.n_layers) return stages;
  for (std::size_t s = 0; s < n; ++s) stages[s].layers = {least_begin[s], least_begin[s + 1]};
  return stages;
}

PlacementArgs placement_args(const PlanRequest& request, const StageLayout& stage) {
  const ModelSpec& spec = request.spec;
  const Workload& workload = request.workload;
  const auto n_ranks = static_cast<std::int64_t>(stage.ring.size());
  const std::int64_t block_bytes = workload.kv(spec).block_bytes();
  PlacementArgs args;
  args.ring = stage.ring;
  for (std::int64_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
    args.layers.push_back(layer_demand(request, layer));
  }
  const StageSize size = stage_size(spec, request.roles, workload, stage.layers, n_ranks);
  const std::int64_t largest =
      *std::max_element(stage.token_share.begin(), stage.token_share.end());
  const std::int64_t ring_buffers = ring_buffer_bytes(spec, workload, size, largest);
  for (std::size_t i = 0; i < stage.ring.size(); ++i) {
    const std::int64_t fixed =
        size.weights + ring_buffers +
        activation_bytes(spec, workload, size, static_cast<std::int64_t>(i), stage.token_share[i]);
    const std::int64_t left = request.cluster.usable_bytes(stage.ring[i]) - fixed;
    args.room.push_back(left < 0 ? -1 : left / block_bytes);
    args.read_speed.push_back(request.cluster.rank(stage.ring[i]).memory_gb_per_s);
  }
  args.document_blocks = workload.document_blocks();
  args.tail_blocks = workload.tail_blocks();
  args.n_sequences = workload.n_sequences;
  const DType dtype = workload.weights(spec);
  const std::int64_t q_rows = spec.gqa_group() * spec.head_dim;
  args.blocks_read_per_head = static_cast<double>(matrix_bytes(q_rows, spec.d_model, dtype) +
                                                  matrix_bytes(spec.d_model, q_rows, dtype)) /
                              static_cast<double>(block_bytes);
  return args;
}

}  // namespace longhaul
