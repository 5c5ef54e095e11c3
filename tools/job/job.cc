#include "tools/job/job.h"

#include "base/error.h"
#include "cluster/comm/mpi_environment.h"
#include "tools/job/file_wait_rules.h"
#include "tools/job/launch.h"
#include "tools/job/plan_files.h"
#include "tools/job/weight_check.h"

namespace longhaul {

int run_job(const JobConfig& config, const OpenModel& open_model,
            const std::function<int(JobRanks&)>& lead, const Task& task) {
  if (started_by_mpi_launcher()) {
    require(!config.n_ranks,
            "--ranks makes threads of one process; under mpirun and srun every process is a rank");
    return run_on_processes(config, open_model, lead, task);
  }
  JobEnd end(config.after_loss);
  const FileWaitPolicy file_waits(file_wait_rules(config, end));
  if (config.verify_weights && open_model) verify_if_asked(config, open_model().get());
  if (const auto n_ranks = thread_ranks(config))
    return run_on_threads(config, end, *n_ranks, lead, task);
  return run_alone(config, end, lead, task);
}

}  // namespace longhaul
