#include "tests/cuda_on_host/streams.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/cuda_on_host/fail.h"

namespace longhaul::cuda_on_host {
namespace {

constexpr std::chrono::minutes kStuck{5};

}  // namespace

void queue(cudaStream_t stream, const void* kind, std::function<void()> work) {
  if (stream == nullptr) fail("work on the default stream");
  if (stream->captured) {
    stream->captured->nodes.push_back({kind, std::move(work)});
    return;
  }
  if (leaves_work_undone()) return;
  enqueue(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

void enqueue(cudaStream_t stream, Work work) {
  const std::scoped_lock lock(runtime_lock());
  stream->queue.push_back(std::move(work));
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
    if (std::chrono::steady_clock::now() - begin > kStuck) fail("a stream is stuck");
  }
}

}  // namespace longhaul::cuda_on_host
