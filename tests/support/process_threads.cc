#include "tests/support/process_threads.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "base/clock.h"

namespace longhaul::test {

ThreadIds process_threads() {
  ThreadIds ids;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    ids.insert(task.path().filename().string());
  return ids;
}

ThreadIds threads_since(const ThreadIds& before) {
  ThreadIds ids = process_threads();
  std::erase_if(ids, [&](const std::string& id) { return before.contains(id); });
  return ids;
}

bool only_stay(const ThreadIds& threads, std::size_t n) {
  const Deadline deadline = deadline_in(std::chrono::minutes(1));
  while (Clock::now() < deadline) {
    const ThreadIds now = process_threads();
    ThreadIds left;
    std::set_intersection(now.begin(), now.end(), threads.begin(), threads.end(),
                          std::inserter(left, left.end()));
    if (left.size() == n) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace longhaul::test
