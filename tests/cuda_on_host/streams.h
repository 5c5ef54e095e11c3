// What the emulated GPUs do when: a queue for each stream, whose work is done as late as CUDA
// allows, when somebody waits for it or asks for its end (the first questions are answered with one
// more piece of work at most). While a stream captures, its work becomes nodes of a graph instead,
// with their arguments as they are then, and is done whenever the graph is launched: nodes read
// memory as it is at that time. All threads share one lock, which work is done under.
#pragma once
#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tests/cuda_on_host/device_memory.h"

namespace longhaul::cuda_on_host {

// Does one piece of work; false when it cannot go on yet.
using Work = std::function<bool()>;

}  // namespace longhaul::cuda_on_host

// What CUDA's handles name.
struct CUgraph_st {
  struct Node {
    const void* kind;  // the kernel, or the function of the runtime
    std::function<longhaul::cuda_on_host::Work()> make;  // the work of one launch
  };
  std::vector<Node> nodes;  // in the order of one stream
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;  // launches that are queued keep theirs
};
struct CUstream_st {
  int device = 0;
  int priority = 0;  // lower numbers first
  std::deque<longhaul::cuda_on_host::Work> queue;
  bool is_running = false;
  int n_asked = 0;                       // since work was queued
  std::unique_ptr<CUgraph_st> captured;  // null unless it captures
};
struct CUevent_st {
  struct State {
    std::uint64_t n_recorded = 0;
    std::uint64_t n_done = 0;
    cudaStream_t stream = nullptr;  // where it was recorded last
    std::chrono::steady_clock::time_point at;
  };
  std::shared_ptr<State> state = std::make_shared<State>();  // work may outlive the event
};

namespace longhaul::cuda_on_host {

// Queues work, or adds a node to the graph that the stream captures.
void queue(cudaStream_t stream, const void* kind, std::function<void()> work);
// Queues work that may have to wait for others, and has no place in graphs.
void enqueue(cudaStream_t stream, Work work);
// The same of work that has: each launch makes its own.
void queue_waiting(cudaStream_t stream, const void* kind, std::function<Work()> make);

// Does at most `n_most` pieces; true when the queue is empty.
bool advance(cudaStream_t stream, std::size_t n_most);
// A question whether the queue is empty: does one piece. Who asks a third time, with nothing queued
// since, waits, and much may be done at once, which is faster where protecting memory is slow. Who
// asks in vain for long waits for another GPU, which works on although nobody asks there.
bool ask(cudaStream_t stream);
// One piece of every stream's work, of all GPUs.
void advance_all();
// Blocks until done() is true, doing the stream's work; ends the program after minutes without
// progress.
void work_until(cudaStream_t stream, const std::function<bool()>& done);

// Blocks as CUDA may before it takes or frees memory: until this thread's GPU has done all that is
// queued, also what waits for a peer, whose thread has to go on for that.
void wait_for_gpu(const char* call);
// How long work may make no progress before the program ends: five minutes, unless a test that
// looks for such a thing says so.
void set_stuck_after(std::chrono::milliseconds limit);
std::chrono::milliseconds stuck_after();

// Aborts if this thread captures: CUDA refuses such calls then, and the capture is lost.
void forbid_in_capture(const char* call);

// How many GPUs there are: one, unless a test says so before anything else.
void set_device_count(int count);

}  // namespace longhaul::cuda_on_host
