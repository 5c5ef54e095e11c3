// Compiled instead of gpu_copies.cc in a build without CUDA.
#include "base/error.h"
#include "cluster/comm/gpu_copies.h"

namespace longhaul::cuda {
namespace {

[[noreturn]] void absent() {
  throw Error(ErrorCode::kUnsupported, "copies from and to GPUs: this build is without CUDA");
}

}  // namespace

bool is_gpu_memory(const void*) { return false; }
void queue_copy_to_host(Stream&, std::byte*, const std::byte*, std::size_t) { absent(); }
void queue_copy_to_gpu(Stream&, std::byte*, const std::byte*, std::size_t) { absent(); }
int current_gpu() { absent(); }
GpuId gpu_id(int) { absent(); }

}  // namespace longhaul::cuda
