#include "worker/snapshot/in_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace longhaul {

int n_file_threads() {
  return std::clamp(4 * static_cast<int>(std::thread::hardware_concurrency()), 4, 8);
}

void in_parallel(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& work) {
  std::mutex mutex;  // guards what follows
  std::int64_t n_begun = 0;
  std::exception_ptr failure;
  const auto run = [&] {
    Piece buffer;
    for (;;) {
      std::int64_t i = 0;
      {
        const std::lock_guard lock(mutex);
        if (failure || n_begun == n) return;
        i = n_begun++;
      }
      try {
        work(i, buffer);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(n, n_file_threads()); ++i)
      threads.emplace_back(run);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace longhaul
