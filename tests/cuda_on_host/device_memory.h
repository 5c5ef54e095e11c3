// The memory of the emulated GPUs: an arena that only copies and kernels may touch, so that host
// code that reads GPU memory crashes in tests as it would on a GPU.
#pragma once
#include <cstddef>
#include <mutex>

namespace longhaul::cuda_on_host {

inline constexpr std::size_t kArenaBytes = std::size_t{1} << 30U;

// For measuring what the host does: from before the first call of CUDA on, GPUs have memory of so
// many bytes that is never touched, and work that is queued is counted and never done.
void leave_work_undone(std::size_t arena_bytes);
bool leaves_work_undone();
std::size_t device_memory_bytes();

// Of all emulated GPUs: whoever looks at what they have, or does their work, holds it.
std::recursive_mutex& runtime_lock();

// While it is in scope, the calling thread may touch the arena, and has the lock: streams of
// several threads work one after another. A thread may nest it.
class DeviceMemoryAccess {
 public:
  DeviceMemoryAccess();
  ~DeviceMemoryAccess();
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;
};

// Filled with NaNs, so that nobody relies on zeros. Null when the arena is full.
std::byte* take_device_memory(std::size_t bytes);
// Fills it with NaNs. Aborts if something was written behind it.
void give_back_device_memory(void* data);
std::size_t device_memory_taken();
// The most that was taken at once, since the start or since it was forgotten.
std::size_t device_memory_peak();
void forget_device_memory_peak();
// Whether all these bytes lie in the arena, in memory that is taken.
bool is_device_memory(const void* at, std::size_t bytes = 1);

}  // namespace longhaul::cuda_on_host
