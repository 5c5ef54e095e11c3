// Where a worker stands among the ranks that run a plan, and how it reaches the others.
#pragma once
#include <cstdint>
#include <memory>

#include "base/device/gpu_memory.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/gpu_transport.h"
#include "partition/cluster_spec.h"
#include "partition/plan.h"

namespace longhaul {

// How retrieval heads work over the blocks of earlier chunks (docs/ring.md). Both give the same
// result.
enum class HistoryChoice {
  kByCost,         // what the cost model predicts to be faster, per chunk and layer
  kKeysTravel,     // always: homes put their blocks on the ring again
  kQueriesTravel,  // always: queries go round with their partial sums
};

struct RingPlace {
  std::shared_ptr<const Plan> plan = nullptr;
  std::shared_ptr<const ClusterSpec> cluster = nullptr;  // the speeds that kByCost looks at
  std::int64_t replica = 0;                              // of plan->replicas
  // Exactly the ranks of that replica, in any order; their job ranks are the plan's. Must outlive
  // the worker and belongs to its step thread.
  Communicator* comm = nullptr;
  HistoryChoice history = HistoryChoice::kByCost;
  // Between ranks with GPUs of their own; the same on all ranks, for all but kStaged.
  GpuTransport transport = GpuTransport::kStaged;
  // Of this rank's GPU memory and of pinned memory, taken at once (cuda::MemoryArena): what the
  // plan has for everything but the weights. 0: piece by piece, when it is needed.
  ArenaBytes arena = {};
};

}  // namespace longhaul
