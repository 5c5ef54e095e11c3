// Prepares groups in the background, one ahead, so that tokenising a document costs no time while
// the workers compute. Several replicas may take from one feed.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "coordinator/preparation.h"

namespace longhaul {

// Owns one thread, which calls `prepare_next(i)` for i = 0, 1, ... n_groups - 1 in order, until one
// throws; kCancelled says that nobody will take more, and is not handed on. The other
// members are thread-safe.
class GroupFeed {
 public:
  GroupFeed(std::size_t n_groups, std::function<PreparedGroup(std::size_t)> prepare_next);
  ~GroupFeed();  // waits for a group that is being prepared
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
  std::function<PreparedGroup(std::size_t)> prepare_next_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t n_taken_ = 0;
  std::optional<PreparedGroup> ready_;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace longhaul
