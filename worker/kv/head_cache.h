// The cache of one (sequence, layer, KV head) on this rank: its blocks in ascending order of
// position, shared with forks where they are equal. In a ring of ranks it holds only the blocks
// that are at home here. Knows bytes and positions, not what is computed with them.
//
// A sequence counts positions (TokenPos), a cache counts slots (SlotIndex): its tokens in order of
// their positions. They are the same until tokens go. When a method keeps some slots (keep()), the
// tokens that stay fill blocks anew and no longer stand at consecutive positions; the cache lists
// theirs. All of them are in the past of every later query, so attention may take any positions for
// them that are in the past as well: blocks() says that they are the sequence's last ones, and
// attention without a window, which only asks whether a key is in the past, needs to know no list:
//
//   positions 0..9 in blocks of 4, keep 1 2 6 9      slots      0 1 2 3 | 4 5
//   then 10 and 11 are appended                      positions  1 2 6 9 | 10 11
//                                                    blocks()   6 7 8 9 | 10 11
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/device_table.h"
#include "worker/kv/seen_slots.h"

namespace longhaul {

// Used by one thread; the pool must outlive it.
class HeadCache {
 public:
  explicit HeadCache(BlockPool& pool, BlockUse use = BlockUse::kRetrieval);
  ~HeadCache();
  HeadCache(HeadCache&& other) noexcept;
  HeadCache& operator=(HeadCache&&) = delete;
  HeadCache(const HeadCache&) = delete;

  // Where new tokens go: the last n_blocks blocks, from a slot of the first of them on.
  struct AppendPlace {
    BlockSlot first_slot{0};
    std::int64_t n_blocks = 0;
  };
  // Makes room for n_tokens more at next_position() and after it, and counts them as there: the
  // caller writes them next (kernels/kv_append.h). A partial last block that others share is
  // replaced by a copy first. Empty, and nothing changed, when the pool has too few blocks.
  std::optional<AppendPlace> extend(std::int64_t n_tokens);
  // Block number i of those of the newest place, for writing.
  std::byte* writable_block(const AppendPlace& place, std::int64_t i) const;
  // Where the caller writes the addresses of these blocks, too, in a GPU's memory (KvAppendItem).
  // Null on CPUs, and where the blocks cannot be said by number.
  TableMemory::Entry* entries_to_write(const AppendPlace& place);

  // Where the tokens of one block go.
  struct StorePlace {
    std::byte* block = nullptr;
    BlockSlot first_slot{0};
  };
  // Makes room for the tokens at `positions`, which all lie in one block (position / block_size):
  // the cache holds those before them in that block, or the block starts with them; of slots that
  // were kept the block's tokens before that are apart. The caller writes them next. Blocks may
  // come in any order. Empty, and nothing changed, when the pool has
  // no block.
  std::optional<StorePlace> store(Extent positions);
  // The sequence has the tokens before this position now, wherever they are stored.
  void advance_to(TokenPos next) { next_position_ = next; }

  // Forgets the sequence's tokens from this position on, none of which a block before them was
  // freed or a slot moved for since.
  void take_back(TokenPos next);

  // The same tokens, sharing all blocks.
  HeadCache fork() const;
  // The full blocks of it alone, which nobody writes to any more, from the one on that its blocks()
  // say holds the token at `from`.
  HeadCache full_blocks(TokenPos from) const;
  // Frees the blocks whose positions all lie in `hidden`, but not the one that the sequence's next
  // token goes to.
  void free_hidden(Extent hidden);

  // Keeps the tokens in `slots`, which ascend, and forgets the others. Their keys and values move
  // bit for bit into blocks that they fill, or stay where a whole block does; what is no longer
  // used goes back to the pool, but for what forks share. For heads that see every token; where
  // other ranks hold blocks too, each keeps slots of its own. Takes the new blocks before it frees
  // the old. False, and nothing changed, when the pool has too few.
  // With `seen_by`, for each of these slots the query heads that see it; what comes later all see.
  bool keep(std::span<const SlotIndex> slots, std::span<const SeenBy> seen_by = {});
  // Of an empty cache: room for tokens at these positions, which ascend and lie before `next`, as
  // if the others before it had gone by keep(), with `seen_by` as there. The blocks that their
  // slots fill, in order, for writing; empty, and nothing changed, when the pool has too few.
  std::optional<std::vector<std::byte*>> hold(std::vector<TokenPos> positions, TokenPos next,
                                              std::span<const SeenBy> seen_by = {});
  // Forgets one slot: the last slot's token moves into it, so that nothing else moves. Slots are
  // then no longer in the order of their positions. For methods that drop a token at every step;
  // extend() fills the slot that became free. False, and nothing changed, when the pool has no
  // block for a copy of one that forks share.
  bool forget(SlotIndex slot);
  // Of a cache of which slots were kept: whatever comes next begins anew, wherever this rank's last
  // token stood. Where tokens are forgotten one by one on any rank, after each of them.
  void list();
  bool is_compacted() const { return listed_ != nullptr; }
  std::int64_t n_slots() const { return n_slots_; }  // tokens that are here
  // The positions of all slots: ascending, unless some were forgotten one by one.
  std::vector<TokenPos> positions() const;
  // The query heads that see each slot.
  std::vector<SeenBy> seen_by() const;

  BlockUse use() const { return use_; }
  // Of the sequence's next token: after all so far, appended here, freed, or stored elsewhere.
  TokenPos next_position() const { return next_position_; }
  std::span<const KvBlockRef> blocks() const { return blocks_; }
  // The same in a GPU's memory. Empty as entries_to_write is null.
  std::optional<BlockTable> table() const;

 private:
  std::int64_t n_free_slots() const;  // of the last block
  bool own_block(std::size_t index);
  void move_to_end();
  std::shared_ptr<const SeenSlots> slots_seen_by(std::span<const SeenBy> seen_by);
  void refer_to_blocks(std::int64_t n_kept);
  std::optional<std::vector<BlockId>> gather(std::span<const SlotIndex> slots);

  BlockPool* pool_;
  BlockUse use_;
  TokenPos next_position_{0};
  std::vector<KvBlockRef> blocks_;      // as attention reads them
  std::vector<BlockId> ids_;            // the same blocks in the pool
  std::int64_t n_slots_ = 0;            // of all blocks
  std::unique_ptr<DeviceTable> table_;  // of a GPU's cache
  // True positions of the first slots, since some were kept and others not; shared with forks.
  std::shared_ptr<const std::vector<TokenPos>> listed_;
  // Of the listed ones' blocks, where not all query heads see all slots; shared with forks.
  std::shared_ptr<const SeenSlots> seen_by_;
  TokenPos first_unlisted_{0};  // what comes from here on has no place in the listed ones' blocks
};

}  // namespace longhaul
