#include "partition/check_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/int8_format.h"
#include "base/sizes.h"
#include "partition/memory_model.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostViolations = 50;

class Violations {
 public:
  template <typename... Args>
  void add_unless(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (holds || list_.size() >= kMostViolations) return;
    list_.push_back(where_ + fmt::format(format, std::forward<Args>(args)...));
  }
  void at(std::string where) { where_ = std::move(where); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::string where_;
  std::vector<std::string> list_;
};

void check_ring(const Stage& stage, std::int64_t n_ranks, std::unordered_set<Rank>& seen,
                Violations& violations) {
  violations.add_unless(!stage.ring.empty(), "no ranks in the ring");
  for (const Rank rank : stage.ring) {
    violations.add_unless(0 <= rank.value && rank.value < n_ranks,
                          "rank {} is not in the cluster of {} ranks", rank.value, n_ranks);
    violations.add_unless(seen.insert(rank).second, "rank {} has two places", rank.value);
  }
}

void check_token_shares(const Stage& stage, Violations& violations) {
  violations.add_unless(stage.token_share.size() == stage.ring.size(),
                        "{} token shares for {} ranks", stage.token_share.size(),
                        stage.ring.size());
  std::int64_t sum = 0;
  for (const RingPos i : stage.token_share.ids()) {
    const std::int64_t share = stage.token_share[i];
    violations.add_unless(0 <= share && share <= Stage::kTokenShareTotal,
                          "token share {} at ring position {}", share, i.value);
    sum += std::clamp<std::int64_t>(share, 0, Stage::kTokenShareTotal);
  }
  violations.add_unless(sum == Stage::kTokenShareTotal, "token shares sum to {} instead of {}", sum,
                        Stage::kTokenShareTotal);
}

void check_home(const Home& home, bool may_split, const std::unordered_set<Rank>& ring,
                LayerId layer, KvHeadId kv_head, Violations& violations) {
  const auto head = [&] { return fmt::format("layer {} head {}", layer.value, kv_head.value); };
  violations.add_unless(!home.shares.empty(), "{}: no home", head());
  violations.add_unless(may_split || home.shares.size() == 1, "{}: {} homes instead of one", head(),
                        home.shares.size());
  std::int64_t sum = 0;
  std::unordered_set<Rank> homes;
  for (const HomeShare& share : home.shares) {
    violations.add_unless(ring.contains(share.rank), "{}: home {} is not in the ring", head(),
                          share.rank.value);
    violations.add_unless(homes.insert(share.rank).second, "{}: home {} twice", head(),
                          share.rank.value);
    violations.add_unless(0 < share.weight && share.weight <= Home::kMaxWeight,
                          "{}: weight {} at rank {}", head(), share.weight, share.rank.value);
    sum += std::clamp<std::int64_t>(share.weight, 0, Home::kMaxWeight);
  }
  violations.add_unless(sum <= Home::kMaxWeight, "{}: weights sum to {}", head(), sum);
}

void check_heads(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                 Violations& violations) {
  const bool layers_known = stage.layers.begin >= 0 && stage.layers.end <= spec.n_layers;
  const bool shape = stage.home.size() == static_cast<std::size_t>(stage.layers.size());
  violations.add_unless(shape, "homes for {} layers instead of {}", stage.home.size(),
                        stage.layers.size());
  if (!shape || !layers_known) return;
  const std::unordered_set<Rank> ring(stage.ring.begin(), stage.ring.end());
  for (const LayerId layer : stage.layer_ids()) {
    const auto& heads = stage.home[static_cast<std::size_t>(layer.value - stage.layers.begin)];
    const bool complete = heads.size() == static_cast<std::size_t>(spec.n_kv_heads);
    violations.add_unless(complete, "layer {}: homes for {} heads instead of {}", layer.value,
                          heads.size(), spec.n_kv_heads);
    if (!complete) continue;
    for (const KvHeadId h : heads.ids()) {
      const bool may_split = plan.heads.window(layer, h).is_unlimited() && !plan.reproducible;
      check_home(heads[h], may_split, ring, layer, h, violations);
    }
  }
}

// Slices lie end to end and cover [0, total).
void check_slices(const IndexedVector<RingPos, Extent>& slices, std::int64_t total,
                  std::size_t n_ranks, std::string_view what, Violations& violations) {
  violations.add_unless(slices.size() == n_ranks, "{} {} slices for {} ranks", slices.size(), what,
                        n_ranks);
  std::int64_t next = 0;
  for (const Extent& slice : slices) {
    if (slice.empty()) {
      violations.add_unless(slice.begin == slice.end, "{} slice [{}, {}) runs backwards", what,
                            slice.begin, slice.end);
      continue;
    }
    violations.add_unless(slice.begin == next, "{} slice [{}, {}) begins not at {}", what,
                          slice.begin, slice.end, next);
    next = slice.end;
  }
  violations.add_unless(next == total, "{} slices end at {} instead of {}", what, next, total);
}

// Activations are quantised in groups, which ranks do not share.
void check_integer_slices(const Plan& plan, Violations& violations) {
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      for (const Extent& slice : stage.ffn_slice) {
        violations.add_unless(
            slice.empty() || slice.begin % kInt8Group == 0,
            "with weights of int8 or int4 FFN slices begin at multiples of {}, not at {}",
            kInt8Group, slice.begin);
      }
    }
  }
}

void check_format(const Plan& plan, const ModelSpec& spec, Violations& violations) {
  violations.add_unless(plan.kv.head_dim == spec.head_dim, "head_dim {} instead of {}",
                        plan.kv.head_dim, spec.head_dim);
  violations.add_unless(plan.kv.block_size > 0, "blocks of {} tokens", plan.kv.block_size);
  violations.add_unless(plan.chunk_len > 0, "chunks of {} tokens", plan.chunk_len);
  violations.add_unless(!plan.replicas.empty(), "no replicas");
}

}  // namespace

std::vector<std::string> check_structure(const Plan& plan, const ModelSpec& spec,
                                         std::int64_t n_ranks) {
  Violations violations;
  check_format(plan, spec, violations);
  const HeadTable& table = plan.heads;
  const bool heads_known =
      table.n_layers() == spec.n_layers && table.n_kv_heads() == spec.n_kv_heads;
  violations.add_unless(heads_known, "heads of {} layers of {} KV heads instead of {} of {}",
                        table.n_layers(), table.n_kv_heads(), spec.n_layers, spec.n_kv_heads);
  if (!heads_known) return violations.take();
  std::unordered_set<Rank> seen;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    std::int64_t next_layer = 0;
    const auto& stages = plan.replicas[r].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const Stage& stage = stages[s];
      violations.at(fmt::format("replica {} stage {}: ", r, s));
      violations.add_unless(stage.layers.begin == next_layer && !stage.layers.empty(),
                            "layers [{}, {}) after layer {}", stage.layers.begin, stage.layers.end,
                            next_layer);
      next_layer = stage.layers.end;
      check_ring(stage, n_ranks, seen, violations);
      check_token_shares(stage, violations);
      check_heads(plan, stage, spec, violations);
      check_slices(stage.ffn_slice, spec.d_ff, stage.ring.size(), "FFN", violations);
      check_slices(stage.vocab_slice, s + 1 == stages.size() ? spec.vocab_size : 0,
                   stage.ring.size(), "vocabulary", violations);
    }
    violations.at(fmt::format("replica {}: ", r));
    const bool is_shared = !stages.empty() && plan.replicas[r].is_shared();
    const auto why_not = is_shared ? why_not_on_ring(table) : std::nullopt;
    violations.add_unless(!why_not, "{}", why_not.value_or(""));
    violations.add_unless(next_layer == spec.n_layers, "layers end at {} instead of {}", next_layer,
                          spec.n_layers);
  }
  return violations.take();
}

std::vector<std::string> check_all_but_memory(const Plan& plan, const ModelSpec& spec,
                                              const ClusterSpec& cluster,
                                              const Workload& workload) {
  std::vector<std::string> found = check_structure(plan, spec, cluster.n_ranks());
  if (!found.empty()) return found;
  Violations violations;
  violations.add_unless(plan.kv == workload.kv(spec), "the KV format is not the workload's");
  violations.add_unless(plan.chunk_len == workload.chunk_len,
                        "chunks of {} tokens, the workload's have {}", plan.chunk_len,
                        workload.chunk_len);
  if (is_integer(workload.weights(spec))) check_integer_slices(plan, violations);
  return violations.take();
}

std::vector<std::string> check_memory(const Plan& plan, const ModelSpec& spec,
                                      const ClusterSpec& cluster, const Workload& workload) {
  Violations violations;
  const auto bytes = memory_of(plan, spec, cluster, workload);
  for (const Rank r : bytes.ids()) {
    const RankBytes& rank = bytes[r];
    violations.add_unless(
        rank.free() >= 0,
        "rank {} needs {} of {}: weights {}, retrieval cache {}, streaming cache {}, activations "
        "{}, ring buffers {}, transfers {}, headroom {}",
        r.value, format_byte_size(rank.total()), format_byte_size(rank.limit),
        format_byte_size(rank.weights), format_byte_size(rank.kv_retrieval),
        format_byte_size(rank.kv_streaming), format_byte_size(rank.activations),
        format_byte_size(rank.ring_buffers), format_byte_size(rank.transfers),
        format_byte_size(rank.headroom));
  }
  return violations.take();
}

std::vector<std::string> check_plan(const Plan& plan, const ModelSpec& spec,
                                    const ClusterSpec& cluster, const Workload& workload) {
  std::vector<std::string> found = check_all_but_memory(plan, spec, cluster, workload);
  if (!found.empty()) return found;  // memory cannot be counted on a broken plan
  return check_memory(plan, spec, cluster, workload);
}

}  // namespace longhaul
