// What the made-up GPUs of tests/streams_on_host do when: a queue for each stream, whose work is
// done as late as CUDA allows, when somebody waits for it or asks for its end (each question is
// answered with one more piece of work at most). All threads share one lock, which work is done
// under.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <mutex>

namespace longhaul::streams_on_host {

// Does one piece of work; false when it cannot go on yet.
using Work = std::function<bool()>;

std::recursive_mutex& runtime_lock();

// Any thread.
void enqueue(cudaStream_t stream, Work work);
// Does at most `n_most` pieces; true when the queue is empty.
bool advance(cudaStream_t stream, std::size_t n_most);
// Blocks until done() is true, doing the stream's work; ends the program after minutes without
// progress.
void work_until(cudaStream_t stream, const std::function<bool()>& done);

// Where the memory behind a pointer of the program can be touched. Under the lock.
std::byte* reachable(const void* data);

// How many GPUs there are: one, unless a test says so before anything else.
void set_device_count(int count);

}  // namespace longhaul::streams_on_host
