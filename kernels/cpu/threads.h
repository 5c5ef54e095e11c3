// How many threads the CPU kernels run with, and when those threads end. OpenMP's, which each
// thread that calls kernels has of its own.
#pragma once

namespace longhaul {

// Threads that kernels called from this thread use; 0 restores the default (OMP_NUM_THREADS, else
// the cores this process may use).
void set_kernel_threads(int n_threads);
int kernel_threads();
// Ends the threads that have helped this thread's kernels; its next kernel starts new ones. For a
// thread that hands its work to another: OpenMP counts idle helpers, too, and where all of the
// process are more than its cores, every wait between two kernels becomes a sleep and a waking.
// Compiled by Clang it does nothing: LLVM's OpenMP counts no other thread's helpers.
void end_kernel_helpers();

}  // namespace longhaul
