// Runs the threads of a CUDA thread block on one CPU thread, each as a coroutine with a stack of
// its own that runs until it has to wait for others: at a barrier, or at an instruction of its
// warp.
#pragma once
#include <cstddef>
#include <functional>

namespace longhaul::cuda_on_host {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

struct Place {
  Index thread;
  Index block;
  Index grid;
  Index block_size;
};

// Of the coroutine that runs now.
const Place& this_thread();
// The thread block's shared memory: filled with NaNs when the block starts.
std::byte* shared_memory();

// Runs body() for every thread of one block. A barrier that not all threads reach aborts.
void run_block(Index grid, Index block, unsigned n_threads, std::size_t shared_bytes,
               const std::function<void()>& body);

// Until all threads of the block that have not ended are here.
void sync_block();

// An instruction of the whole warp: each lane gives `in`, and when all 32 have, `all` runs once
// with their 32 inputs and outputs; then each lane goes on with its `out`.
using WarpBody = void (*)(const void* const* in, void* const* out);
void warp_instruction(const void* in, void* out, WarpBody all);

// Copies of this thread that are made when it waits for them, in groups; zeros from null.
void defer_copy(void* to, const void* from, std::size_t bytes);
void commit_copies();
void finish_copies(std::size_t n_pending_groups);

}  // namespace longhaul::cuda_on_host
