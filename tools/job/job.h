// The one way into a job, for every command: however many ranks there are (one, threads of this
// process, or the processes that mpirun or srun started), one thread of one process leads and the
// rest serves.
//
//   return run_job(config, open_model, [&](JobRanks& ranks) {   // called once, on rank 0
//     ...read, check, decide...
//     ranks.run({.model = &model, .heads = heads, .workload = workload}, [&](JobRun& run) {
//       ...send commands through *run.replicas[0] and receive their results, until done...
//     });
//     ...and again with other heads, as often as needed: weights stay, ranks are measured once...
//     print_results();                                          // so there is one output
//     return kExitDone;
//   });
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/comm/communicator.h"
#include "cluster/wire/control_plane.h"
#include "cluster/wire/link.h"
#include "model/head_profile.h"
#include "model/heads/head_table.h"
#include "partition/cluster_spec.h"
#include "partition/workload.h"
#include "tools/job/job_config.h"
#include "tools/job/job_order.h"
#include "tools/job/model_source.h"

namespace longhaul {

// What the ranks are made ready for.
struct JobWork {
  ModelSource* model = nullptr;  // the one that open_model makes on the other ranks
  HeadTable heads = {};
  std::optional<HeadProfile> profile = {};  // lets a refusal say which retrieval ratio would fit
  Workload workload = {};  // of one rank alone only types and block size are looked at
  int n_threads = 0;       // of each rank's kernels; 0: as JobConfig says
  // What the process that leads, rank 0's, holds beside its rank: a draft model.
  std::int64_t leader_bytes = 0;
};

// The ranks, ready: they have read their weights, or are reading them, and serve.
struct JobRun {
  const JobPlan* job = nullptr;    // null: one rank alone, for which nothing was planned
  Workload workload;               // with the plan's chunks and blocks
  std::vector<Link*> replicas;     // [replica] all its ranks as one; each used by one thread
  std::vector<std::string> hosts;  // [rank]
  // [rank] of the CPU kernels, or empty where they are all the same process'.
  std::vector<std::string> instruction_sets = {};
  // What the ranks are doing, by rank; any thread, while `drive` runs.
  std::function<std::vector<WorkerStatus>()> statuses = {};
  // For threads that `drive` starts. Held while results are written: the process does not end in
  // the middle of a line.
  std::mutex* writing = nullptr;
  std::function<void(std::exception_ptr)> fail;  // the way out after a failure; does not return
};
// Sends commands and receives the result of every one of them, or throws.
using Drive = std::function<void(JobRun&)>;

// What rank 0 leads. Used by the thread that run_job was called on.
struct JobRanks {
  std::int64_t n_ranks = 1;
  bool plans = false;                              // false: one rank alone
  std::vector<std::string> instruction_sets = {};  // of each rank, where processes told
  // Blocks until `drive` has returned and the ranks have left their work. `drive` is called on a
  // thread that may block, which may be another one. Throws why there is no plan: then the job can
  // go on with other work. When ranks are lost, or `drive` throws while there are other ranks,
  // it prints why and ends the process; what `drive` throws with one rank alone comes through,
  // but for kTimeout, after which the rank cannot be joined.
  std::function<void(const JobWork& work, const Drive& drive)> run;
  // Collective. The cluster as its ranks found it; with one rank alone that one. Measures once.
  std::function<ClusterSpec(ModelSource& model)> find_cluster;
  // Calls the job's task on every rank, each with `order`, and returns when this rank's is done.
  // `model` is this process' own. Throws as `run` does.
  std::function<void(ModelSource& model, const std::string& order)> together;
};

// Work that all ranks do together without a coordinator: over a communicator of all of them, on a
// thread whose kernels have this rank's share of the host's cores.
using Task = std::function<void(Communicator& comm, ModelSource& model, const std::string& order)>;

// Called on every rank of a job of several processes when it starts; may be empty where no ranks
// are needed.
using OpenModel = std::function<std::shared_ptr<ModelSource>()>;

// Calls `lead` in one process of the job, on the calling thread, and returns what it returned; the
// other processes serve until that one is done, and return 0. Throws what `lead` throws where there
// is one process; else it prints it and returns an exit status. `task` is what
// JobRanks::together calls.
int run_job(const JobConfig& config, const OpenModel& open_model,
            const std::function<int(JobRanks&)>& lead, const Task& task = {});

}  // namespace longhaul
