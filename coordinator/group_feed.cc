#include "coordinator/group_feed.h"

#include <utility>

#include "base/error.h"

namespace longhaul {

GroupFeed::GroupFeed(std::size_t n_groups, PrepareGroup prepare_next)
    : n_groups_(n_groups), prepare_next_(std::move(prepare_next)), thread_([this] { work(); }) {}

GroupFeed::~GroupFeed() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GroupFeed::work() {
  const std::function<bool()> is_over = [this] { return ending_.load(); };
  for (std::size_t i = 0; i < n_groups_; ++i) {
    std::optional<PreparedGroup> group;
    std::exception_ptr failure;
    try {
      group = prepare_next_(i, is_over);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCancelled) return;  // a stop was asked for: nobody takes more
      failure = std::current_exception();
    } catch (...) {
      failure = std::current_exception();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_ || ending_; });
    if (ending_) return;
    ready_ = std::move(group);
    failure_ = failure;
    changed_.notify_all();
    if (failure) return;
  }
}

bool GroupFeed::exhausted() const {
  const std::lock_guard lock(mutex_);
  return n_taken_ == n_groups_;
}

std::optional<PreparedGroup> GroupFeed::try_take() { return take(Clock::now()); }

std::optional<PreparedGroup> GroupFeed::take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline,
                      [&] { return ready_.has_value() || failure_ || n_taken_ == n_groups_; });
  if (failure_) std::rethrow_exception(failure_);
  std::optional<PreparedGroup> group = std::exchange(ready_, std::nullopt);
  if (group) ++n_taken_;
  changed_.notify_all();
  return group;
}

}  // namespace longhaul
