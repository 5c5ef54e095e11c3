#include "tests/streams_on_host/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace longhaul::streams_on_host {
namespace {

constexpr std::size_t kAlignment = 256;

std::byte* map(int file, int how) {
  void* at = mmap(nullptr, DeviceMemory::kBytes, how, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(at);
}

}  // namespace

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("streams_on_host", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kBytes)) != 0) std::abort();
  begin_ = map(file, PROT_NONE);
  alias_ = map(file, PROT_READ | PROT_WRITE);
  ::close(file);
}

std::byte* DeviceMemory::take(std::size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;  // and a guard
  std::size_t at = 0;
  for (const auto& [begin, size] : taken_) {
    if (begin - at >= bytes) break;
    at = begin + size;
  }
  if (kBytes - at < bytes) return nullptr;
  taken_[at] = bytes;
  std::memset(alias_ + at, 0xff, bytes);
  return begin_ + at;
}

void DeviceMemory::give_back(void* data) {
  const auto found = taken_.find(static_cast<std::size_t>(static_cast<std::byte*>(data) - begin_));
  if (found == taken_.end()) std::abort();
  const std::byte* end = alias_ + found->first + found->second;
  for (const std::byte* at = end - kAlignment; at < end; ++at) {
    if (*at == std::byte{0xff}) continue;
    std::fputs("streams_on_host: something was written behind its memory\n", stderr);
    std::abort();
  }
  taken_.erase(found);
}

std::size_t DeviceMemory::bytes_taken() const {
  std::size_t out = 0;
  for (const auto& [begin, size] : taken_) out += size;
  return out;
}

bool DeviceMemory::contains(const void* data) const {
  const auto* at = static_cast<const std::byte*>(data);
  return at >= begin_ && at < begin_ + kBytes;
}

std::byte* DeviceMemory::reachable(const void* data) const {
  auto* at = static_cast<std::byte*>(const_cast<void*>(data));
  return contains(data) ? alias_ + (at - begin_) : at;
}

}  // namespace longhaul::streams_on_host
