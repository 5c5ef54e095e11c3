#include "cluster/comm/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace longhaul {
namespace {

constexpr std::size_t kSmallest = 16 * 1024;
// A small message does not take a block this many times its size.
constexpr std::size_t kMostWaste = 4;

}  // namespace

std::shared_ptr<PinnedBlock> PinnedPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallest));
  const auto suits = [&](const std::unique_ptr<PinnedBlock>& block) {
    const std::size_t has = block->buffer.bytes();
    return has >= size && has <= kMostWaste * size && block->copied.is_done();
  };
  const auto found = std::find_if(free_->begin(), free_->end(), suits);
  std::unique_ptr<PinnedBlock> block;
  if (found != free_->end()) {
    block = std::move(*found);
    free_->erase(found);
  } else {
    block = std::make_unique<PinnedBlock>();
    block->buffer = cuda::PinnedBuffer::apart(size);
    bytes_reserved_ += size;
  }
  return {block.release(), [free = free_](PinnedBlock* used) {
            std::unique_ptr<PinnedBlock> back(used);
            free->push_back(std::move(back));
          }};
}

}  // namespace longhaul
