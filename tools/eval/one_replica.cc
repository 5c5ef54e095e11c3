#include "tools/eval/one_replica.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {

void on_one_replica(JobRanks& ranks, const JobConfig& config, const JobWork& work,
                    const std::function<void(const ReplicaRun&)>& drive) {
  ranks.run(work, [&](JobRun& run) {
    require(run.replicas.size() == 1,
            fmt::format("the plan has {} replicas, but this command drives one: plan with "
                        "--replicas 1",
                        run.replicas.size()));
    const std::size_t n_stages =
        run.job == nullptr ? 1 : run.job->plan->replicas.front().stages.size();
    drive({.steps = {.chunk_len = run.workload.chunk_len,
                     .n_ahead = n_stages + 1,
                     .kv_limit_bytes = config.kv_limit_bytes,
                     .step_timeout = config.step_timeout},
           .link = *run.replicas.front(),
           .job = run});
  });
}

}  // namespace longhaul
