#include "tools/job/engine_config.h"

#include <algorithm>

#include "partition/memory_model.h"
#include "tools/job/plan_job.h"

namespace longhaul {

EngineConfig engine_config(EngineConfig config, const ModelSpec& spec, const JobPlan& job,
                           const Workload& workload, std::size_t replica) {
  const Plan& plan = *job.plan;
  const std::vector<Stage>& stages = plan.replicas[replica].stages;
  config.n_ahead = std::max<std::size_t>(2, stages.size() + 1);
  config.lane = replica;
  if (plan.replicas.size() > 1) config.max_unread = 2;
  config.scheduler.chunk_len = plan.chunk_len;
  KvBudget& budget = config.scheduler.budget;
  budget.chunk_len = plan.chunk_len;
  budget.block_size = plan.kv.block_size;

  // What the plan was made for, and as many times that as the fullest rank has room for.
  double scale = 1e9;
  const auto bytes = memory_of(plan, spec, *job.cluster, as_planned(workload, plan));
  for (const Stage& stage : stages) {
    for (const Rank rank : stage.ring) {
      const RankBytes& mine = bytes[rank];
      const auto kv = static_cast<double>(mine.kv_retrieval + mine.kv_streaming);
      if (kv > 0)
        scale = std::min(scale,
                         (kv + static_cast<double>(std::max<std::int64_t>(0, mine.free()))) / kv);
    }
  }
  // A fork may begin anywhere in a block; nowhere does it touch more than behind a first token.
  const std::int64_t fork = (workload.document_blocks() + 1) * plan.kv.block_size - 1;
  const std::size_t document = budget.bytes_for({0, workload.document_tokens});
  const double all = static_cast<double>(document) +
                     static_cast<double>(workload.n_sequences) *
                         static_cast<double>(budget.bytes_for({fork, fork + workload.tail_tokens}));
  const double limit = std::min(all * std::max(1.0, scale), 0x1p62);
  budget.limit_bytes = std::min(budget.limit_bytes, static_cast<std::size_t>(limit));
  config.kv_scale = all > 0 ? static_cast<double>(budget.limit_bytes) / all : 1.0;
  return config;
}

std::int64_t kv_limit_bytes(const RankBytes& planned, double kv_scale) {
  const std::int64_t kv = planned.kv_retrieval + planned.kv_streaming;
  const double limit = static_cast<double>(kv) * kv_scale;
  // In doubles a limit far beyond the memory is no number of bytes.
  return std::min(static_cast<std::int64_t>(std::min(limit, 0x1p62)),
                  kv + std::max<std::int64_t>(0, planned.free()));
}

}  // namespace longhaul
