#include "base/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cstdint>
#include <new>

#include "base/kernel_text.h"

namespace longhaul {
namespace {

constexpr std::align_val_t kAlignment{64};

std::byte* map(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

bool starts_huge_page(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kHugePageBytes == 0;
}

// As high as it goes in a larger mapping: the next one then comes to lie right below, as one
// mapping with it, of which a process may have few.
std::byte* map_aligned(std::size_t bytes) {
  std::byte* const first = map(bytes);
  if (first == nullptr || starts_huge_page(first)) return first;
  ::munmap(first, bytes);
  const std::size_t room = bytes + kHugePageBytes;
  std::byte* const memory = map(room);
  if (memory == nullptr) return nullptr;
  std::byte* const end = memory + room;
  std::byte* const aligned =
      end - bytes - reinterpret_cast<std::uintptr_t>(end - bytes) % kHugePageBytes;
  constexpr std::size_t kPage = 4096;
  std::byte* const used_end = aligned + (bytes + kPage - 1) / kPage * kPage;
  if (aligned > memory) ::munmap(memory, static_cast<std::size_t>(aligned - memory));
  if (end > used_end) ::munmap(used_end, static_cast<std::size_t>(end - used_end));
  return aligned;
}

}  // namespace

std::byte* map_pages(std::size_t bytes) noexcept {
  std::byte* const memory = map_aligned(bytes);
  if (memory != nullptr) ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: refused, all works
  return memory;
}

void unmap_pages(std::byte* memory, std::size_t bytes) noexcept {
  if (memory != nullptr) ::munmap(memory, bytes);
}

HostMemory::HostMemory(std::size_t bytes) : bytes_(bytes) {
  if (!is_mapped()) {
    data_ = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    return;
  }
  data_ = map_pages(bytes);
  if (data_ == nullptr) throw std::bad_alloc();
}

void HostMemory::free() noexcept {
  if (is_mapped()) {
    unmap_pages(data_, bytes_);
  } else {
    ::operator delete(data_, kAlignment);
  }
  data_ = nullptr;
  bytes_ = 0;
}

std::string huge_pages_refusal() {
  constexpr const char* kSetting = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) {
    return "they are disabled for this process (PR_SET_THP_DISABLE)";
  }
  const std::string words = kernel_text(kSetting);
  if (words.empty()) return fmt::format("the kernel has none: there is no {}", kSetting);
  if (words.find("[never]") == std::string::npos) return "";
  return fmt::format("{} says never; madvise there makes memory faster", kSetting);
}

}  // namespace longhaul
