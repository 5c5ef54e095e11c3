// The memory of blocks that many threads are about to fill, taken from the system page by page:
// threads that write to a new page at the same time would each clear one, and all but one of them
// in vain. Private to this folder.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace longhaul {

class PagesToFill {
 public:
  // Blocks of `block_bytes` each, in any order, on the host.
  PagesToFill(std::vector<std::byte*> blocks, std::size_t block_bytes);

  // Any thread: the pages of one of these blocks are there when it returns.
  void take(std::byte* block);

 private:
  // What blocks have of one huge page, or of as much memory in small ones.
  struct Page {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
  };
  std::size_t block_bytes_;
  std::vector<Page> pages_;  // ascending
  std::unique_ptr<std::once_flag[]> are_taken_;
};

}  // namespace longhaul
