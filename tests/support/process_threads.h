// The threads of this process, as the system lists them. They are told apart, not counted: a thread
// that has been joined is listed for a while yet.
#pragma once
#include <cstddef>
#include <set>
#include <string>

namespace longhaul::test {

#ifdef __clang__
constexpr bool kKernelHelpersEnd = false;  // see end_kernel_helpers (kernels/cpu/threads.h)
#else
constexpr bool kKernelHelpersEnd = true;
#endif

using ThreadIds = std::set<std::string>;
ThreadIds process_threads();
// Those of now that were not there before.
ThreadIds threads_since(const ThreadIds& before);

// Waits until only so many of these are there, for a minute at most.
bool only_stay(const ThreadIds& threads, std::size_t n);

}  // namespace longhaul::test
