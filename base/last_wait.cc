#include "base/last_wait.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace longhaul {

struct LastWait::State {
  std::chrono::milliseconds limit;
  std::function<void()> leave;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool is_called_off = false;

  void wait() {
    {
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, limit, [this] { return is_called_off; })) return;
    }
    leave();
  }
};

LastWait::LastWait(std::chrono::milliseconds limit, std::function<void()> leave)
    : state_(std::make_shared<State>()) {
  state_->limit = limit;
  state_->leave = std::move(leave);
}

void LastWait::begin() {
  std::thread([state = state_] { state->wait(); }).detach();
}

void LastWait::call_off() {
  const std::lock_guard lock(state_->mutex);
  state_->is_called_off = true;
  state_->changed.notify_all();
}

}  // namespace longhaul
