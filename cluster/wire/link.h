// The way between the coordinator and one worker: ordered messages of step commands and results.
// In one process the two ends are a pair of queues that pass values; between processes the messages
// are framed and encoded.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "cluster/wire/step.h"

namespace longhaul {

// The coordinator's end. Used by one thread.
class Link {
 public:
  virtual ~Link() = default;
  // Queues a command. Never blocks; throws kPeerFailed when the worker is gone.
  virtual void send(StepCommand command) = 0;
  // The result of the oldest command not yet answered. Blocks until it is there; throws kTimeout at
  // the deadline, kPeerFailed when the worker is gone, and with its code what a worker says that
  // leaves (StepFailed::ends_job).
  virtual StepResult receive(Deadline deadline) = 0;
};

// The worker's end. Used by one thread.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // The next command; blocks; nullopt when the coordinator is gone.
  virtual std::optional<StepCommand> next() = 0;
  // Whether next() would not block. Does not block itself.
  virtual bool has_next() = 0;
  virtual void answer(StepResult result) = 0;
};

struct LinkPair {
  std::unique_ptr<Link> coordinator;
  std::unique_ptr<WorkerLink> worker;
};
// Two ends in one process; each end may live on its own thread. Destroying one end wakes the other.
// `worker_name` is for the coordinator's errors.
LinkPair make_in_memory_link(const std::string& worker_name = "the worker");

}  // namespace longhaul
