#include "worker/snapshot/pages_to_fill.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "base/host_memory.h"

namespace longhaul {
namespace {

// The system gives these pages now, and not as each is written first; what they hold stays. A wish:
// where it is refused (Linux before 5.14), writing makes them as ever.
void populate(std::byte* begin, std::byte* end) {
#ifdef MADV_POPULATE_WRITE
  constexpr std::uintptr_t kPage = 4096;
  std::byte* const page = begin - reinterpret_cast<std::uintptr_t>(begin) % kPage;
  ::madvise(page, static_cast<std::size_t>(end - page), MADV_POPULATE_WRITE);
#else
  static_cast<void>(begin);
  static_cast<void>(end);
#endif
}

std::byte* end_of_page(std::byte* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return at + (kHugePageBytes - address % kHugePageBytes);
}

}  // namespace

PagesToFill::PagesToFill(std::vector<std::byte*> blocks, std::size_t block_bytes)
    : block_bytes_(block_bytes) {
  std::sort(blocks.begin(), blocks.end());
  for (std::byte* const block : blocks) {
    std::byte* const block_end = block + block_bytes;
    for (std::byte* at = block; at < block_end; at = end_of_page(at)) {
      std::byte* const end = std::min(block_end, end_of_page(at));
      if (!pages_.empty() && at < end_of_page(pages_.back().begin)) {
        pages_.back().end = std::max(pages_.back().end, end);
      } else {
        pages_.push_back({at, end});
      }
    }
  }
  are_taken_ = std::make_unique<std::once_flag[]>(pages_.size());
}

void PagesToFill::take(std::byte* block) {
  const auto first =
      std::upper_bound(pages_.begin(), pages_.end(), block,
                       [](std::byte* at, const Page& page) { return at < page.end; });
  for (auto page = first; page != pages_.end() && page->begin < block + block_bytes_; ++page) {
    std::call_once(are_taken_[static_cast<std::size_t>(page - pages_.begin())],
                   [&] { populate(page->begin, page->end); });
  }
}

}  // namespace longhaul
