// One replica inside this process: a worker on a thread of its own behind the in-memory link.
#pragma once
#include <memory>
#include <thread>

#include "cluster/wire/link.h"
#include "worker/worker.h"

namespace longhaul {

class LocalReplica {
 public:
  // Makes the worker on its thread; throws what its constructor throws.
  explicit LocalReplica(const WorkerConfig& config);
  // Lets the worker finish the step that it is in, and joins it.
  ~LocalReplica();
  LocalReplica(const LocalReplica&) = delete;
  LocalReplica& operator=(const LocalReplica&) = delete;

  Link& link() { return *link_; }

 private:
  std::unique_ptr<Link> link_;
  std::thread thread_;
};

}  // namespace longhaul
