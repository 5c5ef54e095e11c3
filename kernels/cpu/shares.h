// Numbers dealt out to threads in shares of neighbours, for work whose parts lie side by side in
// memory: a thread goes through its share from the front, then helps others from their ends.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace longhaul {

class Shares {
 public:
  struct Part {
    std::int64_t number;
    bool goes_on;  // the thread's next number is the one behind it, unless another takes that first
  };

  // [0, n), n of less than 2^32.
  Shares(std::int64_t n, int n_threads) : shares_(static_cast<std::size_t>(n_threads)) {
    for (int thread = 0; thread < n_threads; ++thread) {
      share(thread).rest = packed(static_cast<std::uint64_t>(thread * n / n_threads),
                                  static_cast<std::uint64_t>((thread + 1) * n / n_threads));
    }
  }

  // What the thread does next; nothing when all numbers are taken. May be called by several
  // threads at a time; each number is given out once.
  std::optional<Part> next(int thread) {
    if (const std::optional<Part> own = take(share(thread), /*first=*/true)) return own;
    const int n_threads = static_cast<int>(shares_.size());
    for (int i = 1; i < n_threads; ++i) {
      if (const std::optional<Part> part = take(share((thread + i) % n_threads), /*first=*/false))
        return part;
    }
    return std::nullopt;
  }

 private:
  // The first number that is left, and the one behind the last, 32 bits each.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> rest{0};
  };

  static std::uint64_t packed(std::uint64_t begin, std::uint64_t end) { return begin << 32 | end; }

  Share& share(int thread) { return shares_[static_cast<std::size_t>(thread)]; }

  static std::optional<Part> take(Share& share, bool first) {
    std::uint64_t rest = share.rest.load(std::memory_order_relaxed);
    while (true) {
      const std::uint64_t begin = rest >> 32;
      const std::uint64_t end = rest & 0xffffffffU;
      if (begin == end) return std::nullopt;
      const std::uint64_t left = first ? packed(begin + 1, end) : packed(begin, end - 1);
      if (share.rest.compare_exchange_weak(rest, left, std::memory_order_relaxed)) {
        return first ? Part{static_cast<std::int64_t>(begin), begin + 1 < end}
                     : Part{static_cast<std::int64_t>(end - 1), false};
      }
    }
  }

  std::vector<Share> shares_;
};

}  // namespace longhaul
