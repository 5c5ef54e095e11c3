#include "tests/cuda_on_host/streams.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/cuda_on_host/fail.h"

namespace longhaul::cuda_on_host {
namespace {

std::atomic<std::chrono::milliseconds> the_limit{std::chrono::minutes(5)};

}  // namespace

void set_stuck_after(std::chrono::milliseconds limit) { the_limit = limit; }
std::chrono::milliseconds stuck_after() { return the_limit; }

void queue(cudaStream_t stream, const void* kind, std::function<void()> work) {
  if (stream == nullptr) fail("work on the default stream");
  if (stream->captured) {
    stream->captured->nodes.push_back({kind, [work = std::move(work)] {
                                         return Work([work] {
                                           work();
                                           return true;
                                         });
                                       }});
    return;
  }
  if (leaves_work_undone()) return;
  enqueue(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

void queue_waiting(cudaStream_t stream, const void* kind, std::function<Work()> make) {
  const std::scoped_lock lock(runtime_lock());
  if (stream->captured) {
    stream->captured->nodes.push_back({kind, std::move(make)});
  } else {
    enqueue(stream, make());
  }
}

void enqueue(cudaStream_t stream, Work work) {
  const std::scoped_lock lock(runtime_lock());
  stream->queue.push_back(std::move(work));
  stream->n_asked = 0;
}

bool advance(cudaStream_t stream, std::size_t n_most) {
  const std::scoped_lock lock(runtime_lock());
  if (stream->is_running) return false;  // it waits for an event that waits for it
  stream->is_running = true;
  for (; n_most > 0 && !stream->queue.empty(); --n_most) {
    if (!stream->queue.front()()) break;
    stream->queue.pop_front();
  }
  stream->is_running = false;
  return stream->queue.empty();
}

bool ask(cudaStream_t stream) {
  constexpr int kLate = 2;
  constexpr std::size_t kMost = 64;
  constexpr int kPatience = 256;
  constexpr int kMeanwhile = 64;
  const std::scoped_lock lock(runtime_lock());
  const std::size_t n_before = stream->queue.size();
  const bool waits = ++stream->n_asked > kLate;
  if (advance(stream, 1)) return true;
  if (!waits) return false;
  if (stream->queue.size() == n_before) {
    if (stream->n_asked % kPatience != 0) return false;
    for (int i = 0; i < kMeanwhile; ++i) advance_all();
    return false;
  }
  const DeviceMemoryAccess access;
  return advance(stream, kMost);
}

void work_until(cudaStream_t stream, const std::function<bool()>& done) {
  auto begin = std::chrono::steady_clock::now();
  // One thing of the stream, if its time has come.
  const auto can_work = [&] {
    const std::size_t n_before = stream == nullptr ? 0 : stream->queue.size();
    if (stream != nullptr) advance(stream, 1);
    return stream != nullptr && stream->queue.size() < n_before;
  };
  for (;;) {
    {
      const std::scoped_lock lock(runtime_lock());
      if (done()) return;
      if (can_work()) {
        // What follows at once finds the memory open: without protection keys each opening is a
        // call of the system that takes longer than most kernels.
        const DeviceMemoryAccess access;
        while (!done() && can_work()) {
        }
        begin = std::chrono::steady_clock::now();
      }
      if (done()) return;
    }
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() - begin > stuck_after()) fail("a stream is stuck");
  }
}

}  // namespace longhaul::cuda_on_host
