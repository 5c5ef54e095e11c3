// The way out of a job of several ranks after a failure: other threads and ranks may be stuck in
// transfers that never end, so the process says why and leaves at once. What is finished is on disk
// by then, line by line.
#pragma once
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace longhaul {

// Prints what went wrong as the program does for every error, and returns the exit status. With
// `after_loss`, what people are told after ranks were lost, losing them is kExitStopped.
int report_failure(std::exception_ptr failure, std::string_view after_loss = {});

struct JobEndLimits {
  std::chrono::milliseconds all = std::chrono::seconds(15);     // then the process is gone
  std::chrono::milliseconds writing = std::chrono::seconds(1);  // that a line of results may take
};

// One per process; thread-safe.
class JobEnd {
 public:
  explicit JobEnd(std::string after_loss, const JobEndLimits& limits = {})
      : after_loss_(std::move(after_loss)), limits_(limits) {}

  // Held while results are written: the process does not end in the middle of a line.
  std::mutex& writing() { return writing_; }
  // Called before the process ends, to tell other ranks.
  void before(std::function<void()> tell) { tell_ = std::move(tell); }

  // The first caller prints and ends the process; others wait for that. Where printing or logging
  // hangs, as on a disk that does not answer, the process ends with kExitStopped at the limit.
  [[noreturn]] void fail(std::exception_ptr failure);
  // Of a lost rank; `event` is logged with the message as its reason.
  [[noreturn]] void fail(std::string_view message, std::string_view event = {});
  // Without a message: somebody else tells people.
  [[noreturn]] void leave(int status);

 private:
  [[noreturn]] void end(const std::function<int()>& report);
  std::mutex ending_;  // never released
  std::mutex writing_;
  std::function<void()> tell_;
  std::string after_loss_;
  JobEndLimits limits_;
};

}  // namespace longhaul
