#include "tools/job/local_replica.h"

#include <exception>
#include <future>

#include "base/event_log.h"
#include "base/log.h"
#include "cluster/comm/verdict.h"
#include "kernels/cpu/threads.h"
#include "tools/job/step_events.h"

namespace longhaul {
namespace {

// The coordinator hears why the worker leaves; without memory to say it, the link closes with this
// thread and the worker is lost.
void tell_failure(WorkerLink& link, std::exception_ptr failure) noexcept {
  try {
    const Verdict why = verdict_of(failure, /*rank=*/0);
    LONGHAUL_LOG(kError, kStep, "the worker failed: {}", why.message);
    link.answer(StepFailed{.code = why.code, .message = why.message, .ends_job = true});
  } catch (const std::exception&) {
  }
}

void serve(const WorkerConfig& config, std::unique_ptr<WorkerLink> link,
           std::promise<void> started) {
  std::unique_ptr<Worker> worker;
  try {
    worker = std::make_unique<Worker>(config);
  } catch (...) {
    started.set_exception(std::current_exception());
    return;
  }
  started.set_value();
  try {
    if (keeps_events() && config.reports != nullptr) {
      StepEvents events(*link, *config.reports, /*rank=*/0);
      worker->serve(events);
    } else {
      worker->serve(*link);
    }
  } catch (...) {
    tell_failure(*link, std::current_exception());
  }
}

}  // namespace

LocalReplica::LocalReplica(const WorkerConfig& config) {
  LinkPair ends = make_in_memory_link();
  link_ = std::move(ends.coordinator);
  end_kernel_helpers();  // of loading weights
  std::promise<void> started;
  std::future<void> start = started.get_future();
  thread_ = std::thread(serve, config, std::move(ends.worker), std::move(started));
  try {
    start.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

LocalReplica::~LocalReplica() {
  link_.reset();
  thread_.join();
}

}  // namespace longhaul
