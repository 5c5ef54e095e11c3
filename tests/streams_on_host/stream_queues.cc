#include "tests/streams_on_host/stream_queues.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/streams_on_host/cuda_objects.h"

namespace longhaul::streams_on_host {
namespace {

constexpr std::chrono::minutes kStuck{5};

}  // namespace

std::recursive_mutex& runtime_lock() {
  static std::recursive_mutex lock;
  return lock;
}

void enqueue(cudaStream_t stream, Work work) {
  const std::lock_guard lock(runtime_lock());
  stream->queue.push_back(std::move(work));
}

bool advance(cudaStream_t stream, std::size_t n_most) {
  const std::lock_guard lock(runtime_lock());
  if (stream->is_running) return false;  // it waits for an event that waits for it
  stream->is_running = true;
  for (; n_most > 0 && !stream->queue.empty(); --n_most) {
    if (!stream->queue.front()()) break;
    stream->queue.pop_front();
  }
  stream->is_running = false;
  return stream->queue.empty();
}

void work_until(cudaStream_t stream, const std::function<bool()>& done) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    {
      const std::lock_guard lock(runtime_lock());
      if (done()) return;
      if (stream != nullptr) advance(stream, 1);
      if (done()) return;
    }
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() - begin < kStuck) continue;
    std::fputs("streams_on_host: a stream is stuck\n", stderr);
    std::abort();
  }
}

std::byte* reachable(const void* data) { return device_memory().reachable(data); }

}  // namespace longhaul::streams_on_host
