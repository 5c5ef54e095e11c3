// Compiled instead of gpu_copies.cc and gpu_peers.cc in a build without CUDA.
#include "base/error.h"
#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/gpu_peers.h"

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

SharedBuffer::SharedBuffer(std::size_t) { absent(); }
SharedBuffer::~SharedBuffer() = default;
SharedBuffer::SharedBuffer(SharedBuffer&&) noexcept = default;
SharedBuffer& SharedBuffer::operator=(SharedBuffer&&) noexcept = default;
MemoryTicket SharedBuffer::ticket() const { absent(); }

OpenedBuffer::OpenedBuffer(const MemoryTicket&) { absent(); }
OpenedBuffer::~OpenedBuffer() { is_mapped_ = false; }
OpenedBuffer::OpenedBuffer(OpenedBuffer&&) noexcept = default;
OpenedBuffer& OpenedBuffer::operator=(OpenedBuffer&&) noexcept = default;

GpuWindow::GpuWindow(void*, std::size_t) { absent(); }
GpuWindow::~GpuWindow() { memory_ = nullptr; }
GpuWindow::GpuWindow(GpuWindow&&) noexcept = default;
GpuWindow& GpuWindow::operator=(GpuWindow&&) noexcept = default;

std::optional<StreamWords> StreamWords::find(std::string& why) {
  why = "this build is without CUDA";
  return std::nullopt;
}
void StreamWords::queue_write(Stream&, std::byte*, std::uint32_t) const { absent(); }
void StreamWords::queue_wait(Stream&, const std::byte*, std::uint32_t) const { absent(); }

}  // namespace longhaul::cuda
