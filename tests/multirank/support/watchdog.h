// Ends the process when a test hangs, naming the test.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace longhaul::test {

class Watchdog {
 public:
  // `label` stands before the message, such as "rank 3".
  Watchdog(std::string label, std::chrono::milliseconds limit);
  ~Watchdog();
  void test_starts(std::string name);
  void test_ends();

 private:
  void watch();

  const std::string label_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::string running_;  // empty: none
  std::chrono::steady_clock::time_point since_;
  bool stopping_ = false;
  std::jthread thread_;
};

}  // namespace longhaul::test
