#include "base/device/device_memory.h"

#include <cstring>

namespace longhaul {

std::string name_of(const DeviceId& device) {
  return device.kind == Device::kCpu ? "cpu" : "cuda:" + std::to_string(device.ordinal);
}

DeviceQueue::DeviceQueue(const DeviceId& device) : device_(device) {
  if (device.kind == Device::kCuda) gpu_ = std::make_unique<cuda::Stream>(device.ordinal);
}

NotedStep::NotedStep(StreamRef stream) : stream_(stream) {
  if (stream.device() == Device::kCuda) stream.cuda_stream().note_step();
}
NotedStep::~NotedStep() {
  if (stream_.device() == Device::kCuda) stream_.cuda_stream().drop_step();
}

void submit_noted(StreamRef stream) {
  if (stream.device() == Device::kCuda) stream.cuda_stream().submit();
}

void copy_to_host(StreamRef stream, std::span<std::byte> to, const std::byte* from) {
  const HostCopy copy{to, from};
  copy_to_host(stream, {&copy, 1});
}

void copy_to_host(StreamRef stream, std::span<const HostCopy> copies) {
  if (stream.device() == Device::kCpu) {
    for (const HostCopy& copy : copies) {
      if (!copy.to.empty()) std::memcpy(copy.to.data(), copy.from, copy.to.size());
    }
    return;
  }
  for (const HostCopy& copy : copies) {
    cuda::queue_copy_to_host(stream.cuda_stream(), copy.to, copy.from);
  }
  stream.cuda_stream().synchronise();
}

void copy_from_host(StreamRef stream, std::byte* to, std::span<const std::byte> from) {
  if (stream.device() == Device::kCuda) {
    cuda::copy_to_device(stream.cuda_stream(), to, from);
  } else if (!from.empty()) {
    std::memcpy(to, from.data(), from.size());
  }
}

void copy_bytes(StreamRef stream, std::byte* to, const std::byte* from, std::size_t n) {
  if (stream.device() == Device::kCuda) {
    cuda::copy_on_device(stream.cuda_stream(), to, from, n);
  } else if (n > 0) {
    std::memcpy(to, from, n);
  }
}

void set_to_zero(StreamRef stream, std::byte* to, std::size_t n) {
  if (stream.device() == Device::kCuda) {
    cuda::fill_with_zeros(stream.cuda_stream(), to, n);
  } else if (n > 0) {
    std::memset(to, 0, n);
  }
}

}  // namespace longhaul
