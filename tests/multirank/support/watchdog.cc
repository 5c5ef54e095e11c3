#include "tests/multirank/support/watchdog.h"

#include <unistd.h>

#include <cstdio>

namespace longhaul::test {
namespace {
constexpr int kHangExitStatus = 3;
}

Watchdog::Watchdog(std::string label, std::chrono::milliseconds limit)
    : label_(std::move(label)), limit_(limit), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void Watchdog::test_starts(std::string name) {
  const std::lock_guard lock(mutex_);
  running_ = std::move(name);
  since_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Watchdog::test_ends() {
  const std::lock_guard lock(mutex_);
  running_.clear();
  changed_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (running_.empty()) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_until(lock, since_ + limit_);
    if (stopping_ || running_.empty()) continue;
    if (std::chrono::steady_clock::now() < since_ + limit_) continue;
    std::fprintf(stderr, "%s: the test %s hangs: no end after %.1f s\n", label_.c_str(),
                 running_.c_str(), static_cast<double>(limit_.count()) / 1e3);
    std::fflush(nullptr);
    _exit(kHangExitStatus);  // mpirun then ends the other ranks
  }
}

}  // namespace longhaul::test
