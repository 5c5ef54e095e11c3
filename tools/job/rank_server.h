// What every rank of a job does, whether it is a thread or a process: find out what it is, learn
// the plan, read the weights of its stage, serve the coordinator's commands until they end; and
// again, as often as there is work.
#pragma once
#include <exception>
#include <functional>
#include <optional>

#include "cluster/comm/communicator.h"
#include "cluster/wire/link.h"
#include "cluster/wire/phase.h"
#include "cluster/wire/report_board.h"
#include "tools/job/job.h"
#include "tools/job/job_config.h"
#include "tools/job/job_order.h"
#include "tools/job/model_source.h"
#include "tools/job/rank_probe.h"

namespace longhaul {

// What rank 0 has besides.
struct PlanMaker {
  // Makes the plan from the cluster that was found, or throws why there is none.
  std::function<JobPlan(const ClusterSpec& found)> make_plan;
  // Told how that went, when all ranks know.
  std::function<void(const JobPlan&)> planned;
  std::function<void(std::exception_ptr)> refused;
};

// Used by one thread at a time; what it is given must outlive it.
class RankServer {
 public:
  // `comm` holds all ranks of the job.
  RankServer(Communicator& comm, const JobConfig& config, PhaseBoard& board,
             ReportBoard* reports = nullptr)
      : comm_(comm), config_(config), board_(board), reports_(reports) {}

  // Collective over the job. The same on all ranks; measured the first time.
  const ClusterSpec& find_cluster(const ModelSource& model);

  // Collective over the job. Does its part of a task, on the calling thread; throws what
  // failed first on any rank, after the communicator was aborted.
  void work_together(ModelSource& model, const Task& task, const std::string& order);

  // Collective over the job. Blocks until this work is over: rank 0 could not make a plan, the
  // coordinator said Shutdown, or is gone. Only rank 0's `maker` is looked at. Throws Error when
  // a rank, or the reading of any rank's weights, fails; then the communicator is aborted.
  void serve(ModelSource& model, WorkerLink& link, const PlanMaker& maker);

 private:
  const ProbedCluster& probed(const ModelSource& model);
  void serve_plan(ModelSource& model, WorkerLink& link, const PlanMaker& maker);
  void serve_worker(const struct WorkerConfig& worker, WorkerLink& link) const;

  Communicator& comm_;
  const JobConfig& config_;
  PhaseBoard& board_;
  ReportBoard* reports_;
  DeviceId device_;  // known once probed_ is
  std::optional<ProbedCluster> probed_;
};

}  // namespace longhaul
