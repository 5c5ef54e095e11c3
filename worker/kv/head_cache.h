// The cache of one (sequence, layer, KV head) on this rank: its blocks in ascending order of
// position, shared with forks where they are equal. In a ring of ranks it holds only the blocks
// that are at home here. Knows bytes and positions, not what is computed with them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"
#include "worker/kv/block_pool.h"

namespace longhaul {

// Used by one thread; the pool must outlive it.
class HeadCache {
 public:
  explicit HeadCache(BlockPool& pool, BlockUse use = BlockUse::kRetrieval)
      : pool_(&pool), use_(use) {}
  ~HeadCache();
  HeadCache(HeadCache&& other) noexcept;
  HeadCache& operator=(HeadCache&&) = delete;
  HeadCache(const HeadCache&) = delete;

  // Where new tokens go: slots from first_slot on, counted from the first of the last n_blocks
  // blocks.
  struct AppendPlace {
    std::int64_t first_slot = 0;
    std::int64_t n_blocks = 0;
  };
  // Makes room for n_tokens more at positions n_tokens(), n_tokens() + 1, ... and counts them as
  // there: the caller writes them next (kernels/kv_append.h). A partial last block that others
  // share is replaced by a copy first. Empty, and nothing changed, when the pool has too few
  // blocks.
  std::optional<AppendPlace> extend(std::int64_t n_tokens);
  // Block number i of the last n_blocks, for writing.
  std::byte* writable_block(std::int64_t n_blocks, std::int64_t i) const;

  // Where the tokens of one block go.
  struct StorePlace {
    std::byte* block = nullptr;
    std::int64_t first_slot = 0;
  };
  // Makes room for `tokens`, which all lie in one block (position / block_size): the cache holds
  // those before them in that block, or the block starts with them. The caller writes them next.
  // Blocks may come in any order. Empty, and nothing changed, when the pool has no block.
  std::optional<StorePlace> store(Extent tokens);
  // The sequence has n_tokens tokens now, wherever they are stored.
  void advance_to(std::int64_t n_tokens) { n_tokens_ = n_tokens; }

  // The same tokens, sharing all blocks.
  HeadCache fork() const;
  // Frees the blocks whose positions all lie in `hidden`, but not the one that the sequence's next
  // token goes to.
  void free_hidden(Extent hidden);

  // Of the sequence so far: appended here, freed, or stored elsewhere.
  std::int64_t n_tokens() const { return n_tokens_; }
  std::span<const KvBlockRef> blocks() const { return blocks_; }

 private:
  std::int64_t n_free_slots() const;  // of the last block
  bool own_block(std::size_t index);

  BlockPool* pool_;
  BlockUse use_;
  std::int64_t n_tokens_ = 0;
  std::vector<KvBlockRef> blocks_;  // as attention reads them
  std::vector<BlockId> ids_;        // the same blocks in the pool
};

}  // namespace longhaul
