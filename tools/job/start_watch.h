// A deadline around the start of a job of several processes: MPI has none, and waits for ever for a
// process that was stopped or lost before it connected.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace longhaul {

// Ends the process with kExitStopped when it is not over in time; one rank of each host then says
// which ranks are there. Used by one thread.
class StartWatch {
 public:
  explicit StartWatch(std::chrono::milliseconds limit);
  ~StartWatch() { over(); }
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;
  void over();  // the job has started

 private:
  std::mutex mutex_;  // guards is_over_
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace longhaul
