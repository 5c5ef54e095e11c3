#include "tests/support/process_threads.h"

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

namespace longhaul::test {

std::int64_t process_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

bool process_threads_become(std::int64_t n) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (process_threads() != n) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace longhaul::test
