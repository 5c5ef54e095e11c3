#include "worker/snapshot/in_parallel.h"

#include <algorithm>

namespace longhaul {

int n_file_threads() {
  return std::clamp(4 * static_cast<int>(std::thread::hardware_concurrency()), 4, 8);
}

int n_checking_threads(std::int64_t n) {
  constexpr std::int64_t kPiecesOfAThread = 8;
  const int n_least = n_file_threads();
  return static_cast<int>(
      std::clamp<std::int64_t>(n / kPiecesOfAThread, n_least, std::int64_t{2} * n_least));
}

PieceThreads::~PieceThreads() {
  {
    const std::lock_guard lock(mutex_);
    n_allowed_ = n_begun_;
  }
  join();
}

void PieceThreads::allow(std::int64_t n) {
  {
    const std::lock_guard lock(mutex_);
    n_allowed_ = n;
  }
  changed_.notify_all();
  const auto n_threads = static_cast<std::size_t>(std::min<std::int64_t>(n, n_threads_));
  while (threads_.size() < n_threads) threads_.emplace_back([this] { run(); });
}

void PieceThreads::finish() {
  join();
  if (failure_) std::rethrow_exception(failure_);
}

void PieceThreads::join() {
  {
    const std::lock_guard lock(mutex_);
    is_complete_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void PieceThreads::run() {
  Piece buffer;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return failure_ || is_complete_ || n_begun_ < n_allowed_; });
    if (failure_ || n_begun_ >= n_allowed_) return;
    const std::int64_t i = n_begun_++;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work_(i, buffer);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) {
      failure_ = failure;
      changed_.notify_all();
    }
  }
}

void in_parallel(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& work,
                 int n_threads) {
  PieceThreads threads(work, n_threads);
  threads.allow(n);
  threads.finish();
}

}  // namespace longhaul
