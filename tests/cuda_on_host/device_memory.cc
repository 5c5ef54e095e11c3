#include "tests/cuda_on_host/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/cuda_on_host/fail.h"

namespace longhaul::cuda_on_host {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20U;

struct Settings {
  std::size_t arena_bytes = kArenaBytes;
  bool leaves_work_undone = false;
};
Settings& settings() {
  static Settings the_settings;
  return the_settings;
}

// First fit. Closed to a thread by a memory protection key, which takes a few cycles and concerns
// this thread alone; to all threads by mprotect where the CPU has no keys.
class Arena {
 public:
  Arena() : bytes_(settings().arena_bytes), is_filled_(!settings().leaves_work_undone) {
    void* at = mmap(nullptr, bytes_ + kHugePage, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    begin_ = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + kHugePage - 1) /
                                          kHugePage * kHugePage);
    // Where there are any: mprotect takes a hundred times longer for small pages.
    static_cast<void>(madvise(begin_, bytes_, MADV_HUGEPAGE));
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key_ >= 0 && pkey_mprotect(begin_, bytes_, PROT_READ | PROT_WRITE, key_) != 0) {
      std::abort();
    }
  }
  std::byte* take(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;  // and a guard
    std::size_t at = 0;
    for (const auto& [begin, size] : taken_) {
      if (begin - at >= bytes) break;
      at = begin + size;
    }
    if (bytes_ - at < bytes) return nullptr;
    taken_[at] = bytes;
    peak_ = std::max(peak_, bytes_taken());
    if (is_filled_) std::memset(begin_ + at, 0xff, bytes);
    return begin_ + at;
  }
  void give_back(void* data) {
    const auto found =
        taken_.find(static_cast<std::size_t>(static_cast<std::byte*>(data) - begin_));
    if (found == taken_.end()) fail("memory is freed that was not taken");
    if (!is_filled_) {
      taken_.erase(found);
      return;
    }
    std::byte* begin = begin_ + found->first;
    const std::byte* end = begin + found->second;
    const bool is_whole = std::all_of(end - kAlignment, end,
                                      [](std::byte guard) { return guard == std::byte{0xff}; });
    if (!is_whole) fail("something was written behind its memory");
    std::memset(begin, 0xff, found->second);
    taken_.erase(found);
  }
  bool has(const void* data, std::size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(data);
    if (at < begin_ || at >= begin_ + bytes_) return false;
    auto found = taken_.upper_bound(static_cast<std::size_t>(at - begin_));
    if (found == taken_.begin()) return false;
    --found;
    const std::byte* end = begin_ + found->first + found->second - kAlignment;
    return at < end && bytes <= static_cast<std::size_t>(end - at);
  }
  std::size_t bytes_taken() const {
    std::size_t out = 0;
    for (const auto& [begin, size] : taken_) out += size;
    return out;
  }
  std::size_t peak() const { return peak_; }
  void forget_peak() { peak_ = bytes_taken(); }
  void open() {
    if (n_open_++ > 0) return;
    if (key_ >= 0) {
      pkey_set(key_, 0);
    } else {
      protect(PROT_READ | PROT_WRITE);
    }
  }
  void close() {
    if (--n_open_ > 0) return;
    if (key_ >= 0) {
      pkey_set(key_, PKEY_DISABLE_ACCESS);
    } else {
      protect(PROT_NONE);
    }
  }

 private:
  void protect(int how) const {
    if (mprotect(begin_, bytes_, how) != 0) std::abort();
  }
  std::size_t bytes_;
  bool is_filled_;  // with NaNs, where nobody uses it
  std::size_t peak_ = 0;
  std::byte* begin_ = nullptr;
  int key_ = -1;
  std::map<std::size_t, std::size_t> taken_;  // offset -> size, with the guard
  int n_open_ = 0;
};

Arena& arena() {
  static Arena the_arena;
  return the_arena;
}

}  // namespace

void leave_work_undone(std::size_t arena_bytes) {
  settings() = {.arena_bytes = arena_bytes, .leaves_work_undone = true};
}
std::size_t device_memory_bytes() { return settings().arena_bytes; }
bool leaves_work_undone() { return settings().leaves_work_undone; }

std::recursive_mutex& runtime_lock() {
  static std::recursive_mutex the_lock;
  return the_lock;
}

DeviceMemoryAccess::DeviceMemoryAccess() {
  runtime_lock().lock();
  arena().open();
}
DeviceMemoryAccess::~DeviceMemoryAccess() {
  arena().close();
  runtime_lock().unlock();
}

std::byte* take_device_memory(std::size_t bytes) {
  const DeviceMemoryAccess access;
  return arena().take(bytes);
}

void give_back_device_memory(void* data) {
  const DeviceMemoryAccess access;
  arena().give_back(data);
}

std::size_t device_memory_taken() {
  const std::scoped_lock lock(runtime_lock());
  return arena().bytes_taken();
}

std::size_t device_memory_peak() {
  const std::scoped_lock lock(runtime_lock());
  return arena().peak();
}
void forget_device_memory_peak() {
  const std::scoped_lock lock(runtime_lock());
  arena().forget_peak();
}

bool is_device_memory(const void* at, std::size_t bytes) {
  const std::scoped_lock lock(runtime_lock());
  return arena().has(at, bytes);
}

}  // namespace longhaul::cuda_on_host
