// Work on all threads of the calling rank, and scratch memory that lives as long as its thread.
// For operators only.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>

#include "base/host_memory.h"
#include "kernels/cpu/meanwhile.h"
#include "kernels/cpu/shares.h"
#include "kernels/cpu/threads.h"
#ifdef LONGHAUL_SANITIZES_THREADS
#include <atomic>
#endif

namespace longhaul {

namespace parallel_detail {
// OpenMP's own synchronisation is invisible to ThreadSanitizer; an atomic that is written before
// and read after says the same.
class Fence {
 public:
#ifdef LONGHAUL_SANITIZES_THREADS
  void release() { edge_.fetch_add(1, std::memory_order_acq_rel); }
  void acquire() { edge_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  std::atomic<int> edge_{0};
#else
  void release() {}
  void acquire() {}
#endif
};

// The first exception of several threads.
class Failure {
 public:
  template <typename Body>
  void catch_from(const Body& body) {
    try {
      body();
    } catch (...) {
#pragma omp critical(longhaul_parallel_for)
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

// Runs work(failure) on so many threads; throws here what the failure has caught.
template <typename Work>
void on_threads(int n_threads, const Work& work) {
  Failure failure;
  Fence begin;
  Fence end;
  begin.release();
#pragma omp parallel num_threads(n_threads)
  {
    begin.acquire();
    work(failure);
    end.release();
  }
  end.acquire();
  failure.rethrow();
}
}  // namespace parallel_detail

// Runs body(i) for every i in [0, n_tasks) on up to kernel_threads() threads, in any order; returns
// when all are done. The first exception of a body is thrown here. One task, or one thread, runs on
// the caller. The caller looks after its Meanwhile between tasks.
template <typename Body>
void parallel_for(std::int64_t n_tasks, const Body& body) {
  const auto n_threads = static_cast<int>(std::min<std::int64_t>(kernel_threads(), n_tasks));
  if (n_threads <= 1) {
    for (std::int64_t i = 0; i < n_tasks; ++i) {
      body(i);
      Meanwhile::look();
    }
    return;
  }
  parallel_detail::on_threads(n_threads, [&](parallel_detail::Failure& failure) {
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t i = 0; i < n_tasks; ++i) {
      failure.catch_from([&] {
        body(i);
        Meanwhile::look();
      });
    }
  });
}

// As parallel_for, for tasks that read memory one behind the other: each thread goes through
// neighbours, and body(i, goes_on) says whether it means to go on with task i + 1.
template <typename Body>
void parallel_for_neighbours(std::int64_t n_tasks, const Body& body) {
  const auto n_threads = static_cast<int>(std::min<std::int64_t>(kernel_threads(), n_tasks));
  if (n_threads <= 1) {
    parallel_for(n_tasks, [&](std::int64_t i) { body(i, i + 1 < n_tasks); });
    return;
  }
  Shares shares(n_tasks, n_threads);
  parallel_detail::on_threads(n_threads, [&](parallel_detail::Failure& failure) {
    while (const std::optional<Shares::Part> part = shares.next(omp_get_thread_num())) {
      failure.catch_from([&] {
        body(part->number, part->goes_on);
        Meanwhile::look();
      });
    }
  });
}

// How many tasks to cut `n_rows` rows into, so that a task is worth its start: at least
// `min_elements` each, at most four for each thread.
inline std::int64_t n_row_tasks(std::int64_t n_rows, std::int64_t row_elements,
                                std::int64_t min_elements = 16384) {
  const std::int64_t by_size = n_rows * row_elements / min_elements;
  return std::clamp<std::int64_t>(std::min<std::int64_t>(by_size, 4L * kernel_threads()), 1,
                                  std::max<std::int64_t>(n_rows, 1));
}

// Runs body(begin, end) over [0, n_rows), cut as n_row_tasks says.
template <typename Body>
void parallel_rows(std::int64_t n_rows, std::int64_t row_elements, const Body& body) {
  if (n_rows == 0) return;
  const std::int64_t n_tasks = n_row_tasks(n_rows, row_elements);
  parallel_for(n_tasks, [&](std::int64_t task) {
    body(task * n_rows / n_tasks, (task + 1) * n_rows / n_tasks);
  });
}

// Memory that grows and is reused; aligned to 64 bytes. Contents do not survive `bytes`.
class Scratch {
 public:
  std::byte* bytes(std::size_t n) {
    if (n > memory_.bytes()) {
      memory_ = {};  // frees first
      memory_ = HostMemory(n);
    }
    return memory_.data();
  }
  float* floats(std::int64_t n) {
    return reinterpret_cast<float*>(bytes(static_cast<std::size_t>(n) * sizeof(float)));
  }

 private:
  HostMemory memory_;
};

}  // namespace longhaul
