#include "tools/job/plan_files.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "partition/plan_json.h"
#include "tools/job/input_errors.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxClusterFile = std::size_t{1} << 20;
constexpr std::size_t kMaxPlanFile = std::size_t{1} << 30;

}  // namespace

ClusterSpec read_cluster(const std::filesystem::path& file) {
  return read_input(
      [&] { return parse_cluster_toml(read_file(file, kMaxClusterFile), file.string()); });
}

Plan read_plan(const std::filesystem::path& file) {
  const std::string source = file.string();
  const JsonLimits limits{.max_bytes = kMaxPlanFile};
  return read_input([&] {
    return plan_from_json(parse_json(read_file(file, kMaxPlanFile), source, limits), source);
  });
}

std::int64_t ranks_of(const Plan& plan) {
  std::int64_t n_ranks = 1;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      for (const Rank rank : stage.ring) n_ranks = std::max(n_ranks, rank.value + 1);
    }
  }
  return n_ranks;
}

std::int64_t block_size_of(const JobConfig& config) {
  return config.plan.empty() ? usual_block_size(config) : read_plan(config.plan).kv.block_size;
}

std::optional<std::int64_t> thread_ranks(const JobConfig& config) {
  if (config.n_ranks) return config.n_ranks;
  if (!config.cluster.empty()) return read_cluster(config.cluster).n_ranks();
  if (!config.plan.empty()) return ranks_of(read_plan(config.plan));
  if (config.n_stages || config.n_replicas.value_or(1) > 1) return 1;  // what plans are told
  return std::nullopt;
}

}  // namespace longhaul
