#include "worker/snapshot/in_order.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace longhaul {
namespace {

// What the threads and the caller share.
struct Line {
  struct Place {
    Piece piece;
    bool is_made = false;
  };
  std::mutex mutex;  // guards what follows, but not the pieces that somebody works on
  std::condition_variable changed;
  std::vector<Place> places;  // of piece i: i % size
  std::int64_t n_begun = 0;
  std::int64_t n_taken = 0;
  std::exception_ptr failure;

  void fail() {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    changed.notify_all();
  }
  Place& place(std::int64_t i) { return places[static_cast<std::size_t>(i) % places.size()]; }
};

void make_pieces(Line& line, std::int64_t n,
                 const std::function<void(std::int64_t, Piece&)>& make) {
  try {
    for (;;) {
      std::unique_lock lock(line.mutex);
      const auto has_room = [&] {
        return line.n_begun - line.n_taken < static_cast<std::int64_t>(line.places.size());
      };
      line.changed.wait(lock, [&] { return line.failure || line.n_begun == n || has_room(); });
      if (line.failure || line.n_begun == n) return;
      const std::int64_t i = line.n_begun++;
      lock.unlock();
      make(i, line.place(i).piece);
      lock.lock();
      line.place(i).is_made = true;
      line.changed.notify_all();
    }
  } catch (...) {
    line.fail();
  }
}

void take_pieces(Line& line, std::int64_t n,
                 const std::function<void(std::int64_t, Piece&)>& take) {
  try {
    for (std::int64_t i = 0; i < n; ++i) {
      Line::Place& place = line.place(i);
      {
        std::unique_lock lock(line.mutex);
        line.changed.wait(lock, [&] { return line.failure || place.is_made; });
        if (line.failure) return;
      }
      take(i, place.piece);
      const std::lock_guard lock(line.mutex);
      place.is_made = false;
      ++line.n_taken;
      line.changed.notify_all();
    }
  } catch (...) {
    line.fail();
  }
}

}  // namespace

int n_file_threads() {
  return std::clamp(2 * static_cast<int>(std::thread::hardware_concurrency()), 2, 4);
}

void in_order(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& make,
              const std::function<void(std::int64_t, Piece&)>& take) {
  const std::int64_t n_threads = std::min<std::int64_t>(n, n_file_threads());
  Line line;
  line.places.resize(static_cast<std::size_t>(2 * n_threads + 1));
  {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 0; i < n_threads; ++i)
      threads.emplace_back([&] { make_pieces(line, n, make); });
    take_pieces(line, n, take);
  }
  if (line.failure) std::rethrow_exception(line.failure);
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
