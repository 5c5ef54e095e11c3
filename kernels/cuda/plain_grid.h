// How kernels are launched whose grids need no thought.
#pragma once
#include <cstdint>

namespace longhaul::cuda {

// Kernels that are bound by memory: threads of a thread block, and rows along y of a launch (CUDA's
// limit, beyond which thread blocks take several).
inline constexpr int kThreads = 256;
inline constexpr std::int64_t kMostGridRows = 65535;

// What heads that choose or merge tokens compute beside attention: a few keys or queries at a time.
inline constexpr int kChoiceThreads = 128;

}  // namespace longhaul::cuda
