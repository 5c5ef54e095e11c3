// What communicators ask of CUDA beside base/device/device_cuda.h: which memory a pointer names,
// copies that do not wait, and which GPU a rank has. Needs no CUDA to include; in a build without
// it no memory is a GPU's, and everything else throws kUnsupported.
#pragma once
#include <array>
#include <compare>
#include <cstddef>

#include "base/device/device_cuda.h"

namespace longhaul::cuda {

// True for memory that cudaMalloc gave (any GPU's); false for all memory of the host.
bool is_gpu_memory(const void* data);

// Queue a copy between a GPU and pinned memory; both must stay until the stream has made it.
void queue_copy_to_host(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);
void queue_copy_to_gpu(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);

// The calling thread's: that of the Stream it made last.
int current_gpu();

// The same on every process of a machine for one GPU, whatever number each gives it.
struct GpuId {
  std::array<unsigned char, 16> bytes{};
  auto operator<=>(const GpuId&) const = default;
};
GpuId gpu_id(int ordinal);

}  // namespace longhaul::cuda
