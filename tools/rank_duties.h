// What every rank of a job does, whether it is a thread or a process: find out what it is, learn
// the plan, read the weights of its stage, serve the coordinator's commands until it is told to
// stop.
#pragma once
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "cluster/comm/communicator.h"
#include "cluster/wire/link.h"
#include "cluster/wire/phase.h"
#include "model/model_folder.h"
#include "tools/job_order.h"
#include "tools/rank_probe.h"
#include "tools/run_options.h"
#include "worker/weights.h"

namespace longhaul {

// The weights that the ranks of one process have read: those of the same layers on the same device
// are shared.
// Thread-safe.
class WeightsShelf {
 public:
  // The folder must outlive it; `dtype` as Weights::load takes it.
  WeightsShelf(const ModelFolder& model, std::optional<DType> dtype)
      : model_(&model), dtype_(dtype) {}
  std::shared_ptr<const Weights> layers(Extent layers, const DeviceId& device);

 private:
  const ModelFolder* model_;
  std::optional<DType> dtype_;
  std::mutex mutex_;  // guards shelf_; held while reading
  std::map<std::pair<Extent, std::string>, std::shared_ptr<const Weights>> shelf_;  // by device
};

// How long a rank waits for data of another: longer than the coordinator waits for a step, because
// the coordinator can say what every rank is doing.
std::chrono::milliseconds transfer_deadline(const RunOptions& options);

struct RankDuties {
  const RunOptions* options = nullptr;
  const ModelFolder* model = nullptr;
  WeightsShelf* shelf = nullptr;
  PhaseBoard* board = nullptr;
  WorkerLink* link = nullptr;
  // Rank 0 alone: makes the plan from the cluster that was found, or throws why there is none; and
  // is told how that went when all ranks know.
  std::function<JobPlan(const ClusterSpec& found)> make_plan;
  std::function<void(const JobPlan&)> planned;
  std::function<void(std::exception_ptr)> refused;
};

enum class Served {
  kToTheEnd,  // told to shut down, or the coordinator is gone
  kRefused,   // rank 0 could not make a plan
};
// Collective over comm, which holds all ranks of the job. Blocks until the job is over. Throws
// Error when this rank, or the reading of any rank's weights, fails; then `comm` is aborted.
Served serve_rank(Communicator& comm, const RankDuties& duties);

}  // namespace longhaul
