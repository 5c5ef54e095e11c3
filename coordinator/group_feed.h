// Prepares groups in the background, one ahead, so that tokenising a document costs no time while
// the workers compute. Several replicas may take from one feed.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "coordinator/preparation.h"

namespace longhaul {

// The group at an index. `is_over` is for those who wait: true says that nobody takes more groups,
// and that this one may be left with kCancelled.
using PrepareGroup =
    std::function<PreparedGroup(std::size_t, const std::function<bool()>& is_over)>;

// Owns one thread, which calls `prepare_next` for 0, 1, ... n_groups - 1 in order, until one
// throws; kCancelled says that nobody will take more, and is not handed on. The other
// members are thread-safe.
class GroupFeed {
 public:
  GroupFeed(std::size_t n_groups, PrepareGroup prepare_next);
  ~GroupFeed();  // waits for prepare_next, which is told
  GroupFeed(const GroupFeed&) = delete;
  GroupFeed& operator=(const GroupFeed&) = delete;

  bool exhausted() const;  // all groups were taken
  // The next group; nullopt when it is not ready yet or there is none.
  std::optional<PreparedGroup> try_take();
  // The next group; blocks until it is ready or `deadline` (then nullopt), or until others have
  // taken the last one. Rethrows what prepare_next threw.
  std::optional<PreparedGroup> take(Deadline deadline);

 private:
  void work();

  std::size_t n_groups_;
  PrepareGroup prepare_next_;
  std::atomic<bool> ending_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t n_taken_ = 0;
  std::optional<PreparedGroup> ready_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace longhaul
