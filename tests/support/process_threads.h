// The threads of this process, as the system counts them.
#pragma once
#include <cstdint>

namespace longhaul::test {

#ifdef __clang__
constexpr bool kKernelHelpersEnd = false;  // see end_kernel_helpers (kernels/cpu/isa.h)
#else
constexpr bool kKernelHelpersEnd = true;
#endif

std::int64_t process_threads();

// Waits until they are so many, for a minute at most; threads end a little after what told them to.
bool process_threads_become(std::int64_t n);

}  // namespace longhaul::test
