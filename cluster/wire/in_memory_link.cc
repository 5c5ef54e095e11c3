// The Link inside one process: two queues of values behind one mutex. Nothing is encoded.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "cluster/wire/link.h"

namespace longhaul {
namespace {

// What the two ends share; lives as long as one of them does.
struct Channel {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<StepCommand> commands;
  std::deque<StepResult> results;
  bool coordinator_gone = false;
  bool worker_gone = false;
  std::string worker_name;  // set once, before there are two threads
};

class CoordinatorEnd final : public Link {
 public:
  explicit CoordinatorEnd(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  ~CoordinatorEnd() override {
    const std::lock_guard lock(channel_->mutex);
    channel_->coordinator_gone = true;
    channel_->changed.notify_all();
  }

  void send(StepCommand command) override {
    const std::lock_guard lock(channel_->mutex);
    if (channel_->worker_gone) fail_peer();
    channel_->commands.push_back(std::move(command));
    channel_->changed.notify_all();
  }

  StepResult receive(Deadline deadline) override {
    std::unique_lock lock(channel_->mutex);
    const bool woken = channel_->changed.wait_until(
        lock, deadline, [&] { return !channel_->results.empty() || channel_->worker_gone; });
    // What a worker answered before it went away still counts.
    if (!channel_->results.empty()) {
      StepResult result = std::move(channel_->results.front());
      channel_->results.pop_front();
      const auto* failed = std::get_if<StepFailed>(&result);
      if (failed != nullptr && failed->ends_job) throw Error(failed->code, failed->message);
      return result;
    }
    if (!woken)
      throw Error(ErrorCode::kTimeout, channel_->worker_name + " did not answer a step in time");
    fail_peer();
  }

 private:
  [[noreturn]] void fail_peer() const {
    throw Error(ErrorCode::kPeerFailed, channel_->worker_name + " has stopped");
  }
  std::shared_ptr<Channel> channel_;
};

class WorkerEnd final : public WorkerLink {
 public:
  explicit WorkerEnd(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  ~WorkerEnd() override {
    const std::lock_guard lock(channel_->mutex);
    channel_->worker_gone = true;
    channel_->changed.notify_all();
  }

  std::optional<StepCommand> next() override {
    std::unique_lock lock(channel_->mutex);
    channel_->changed.wait(
        lock, [&] { return !channel_->commands.empty() || channel_->coordinator_gone; });
    // Commands of a coordinator that is gone are not worth their time: nobody takes the results.
    if (channel_->coordinator_gone) return std::nullopt;
    StepCommand command = std::move(channel_->commands.front());
    channel_->commands.pop_front();
    return command;
  }

  bool has_next() override {
    const std::lock_guard lock(channel_->mutex);
    return !channel_->commands.empty() || channel_->coordinator_gone;
  }

  void answer(StepResult result) override {
    const std::lock_guard lock(channel_->mutex);
    if (channel_->coordinator_gone) return;
    channel_->results.push_back(std::move(result));
    channel_->changed.notify_all();
  }

 private:
  std::shared_ptr<Channel> channel_;
};

}  // namespace

LinkPair make_in_memory_link(const std::string& worker_name) {
  auto channel = std::make_shared<Channel>();
  channel->worker_name = worker_name;
  return {std::make_unique<CoordinatorEnd>(channel), std::make_unique<WorkerEnd>(channel)};
}

}  // namespace longhaul
