// Cache memory on the worker's device: blocks of one KvBlockShape, cut from slabs that are taken
// from the system or the GPU when needed and given back when they are empty. Counts who shares a
// block; knows nothing of sequences.
//
// Types that quantise groups of tokens cannot be written token by token: a pool of them has a
// second one, of open blocks in f32, which hold the newest tokens until they fill a block. What is
// said of bytes counts both; the limit is that of the closed blocks (open ones are few: those of
// each sequence's newest tokens, and of a chunk in the layer at hand).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/kv_block.h"
#include "kernels/kv_copy.h"
#include "worker/kv/device_table.h"
#include "worker/kv/pool_floats.h"
#include "worker/kv/seen_slots.h"
#include "worker/kv/table_memory.h"

namespace longhaul {

using BlockId = Id<struct BlockTag>;

// What a block is used for, to be counted apart.
enum class BlockUse : std::uint8_t { kRetrieval, kStreaming };

// What a block holds when it is taken. Undefined is enough where kv_append writes it first.
enum class BlockContent : std::uint8_t { kZeros, kUndefined };

// Used by one thread (the worker's step thread).
class BlockPool {
 public:
  // `limit_bytes` bounds what is taken from the system, without the few bytes (at most a 64th) that
  // round a slab up to whole pages; no limit when empty. Blocks are used by the work of `stream`
  // alone.
  explicit BlockPool(const KvBlockShape& shape, std::optional<std::size_t> limit_bytes = {},
                     StreamRef stream = StreamRef::cpu());
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block with one owner; empty when the limit is reached or nothing more is given.
  std::optional<BlockId> take(BlockUse use = BlockUse::kRetrieval,
                              BlockContent content = BlockContent::kZeros);
  // One more owner.
  void share(BlockId id);
  // One owner less; the last one frees the block.
  void release(BlockId id);
  bool is_shared(BlockId id) const;
  std::byte* data(BlockId id) const;
  // Makes the bytes of `to` those of `from`.
  void copy(BlockId to, BlockId from) const;
  // Moves slots between blocks of this pool, bit for bit (kernels/kv_copy.h).
  void copy_slots(std::span<const KvCopyItem> items) const;

  // For a cache's blocks in the GPU's memory; null on CPUs, and for open blocks, of which a cache
  // has one or two.
  std::unique_ptr<DeviceTable> new_table();
  // Which query heads see each slot of a cache's first blocks. Throws kOutOfMemory.
  std::shared_ptr<const SeenSlots> new_seen_slots(std::vector<SeenBy> of_slots);
  // Memory of the device for what caches keep beside blocks. Throws kOutOfMemory.
  std::shared_ptr<PoolFloats> new_floats(std::int64_t n);
  const TableMemory& tables() const { return tables_; }
  StreamRef stream() const { return stream_; }

  // Where open blocks come from; null where tokens are written one by one.
  BlockPool* open() const { return open_.get(); }

  const KvBlockShape& shape() const { return shape_; }
  std::optional<std::size_t> limit_bytes() const { return limit_bytes_; }
  std::int64_t n_blocks_in_use() const { return n_blocks_in_use_; }
  std::size_t bytes_in_use() const;
  std::size_t bytes_in_use(BlockUse use) const {
    const std::size_t open = open_ == nullptr ? 0 : open_->bytes_in_use(use);
    return static_cast<std::size_t>(n_in_use_by_use_[static_cast<std::size_t>(use)]) * bytes_ +
           open;
  }
  // What the slabs hold, free blocks included: what is really taken from the system. One empty slab
  // is kept while others are in use, so that a block that comes and goes costs no system call.
  std::size_t bytes_reserved() const {
    const std::size_t open = open_ == nullptr ? 0 : open_->bytes_reserved();
    return static_cast<std::size_t>(n_blocks_reserved_) * bytes_ + open;
  }

 private:
  struct Slab;
  Slab& slab_of(BlockId id) const;
  std::int64_t slot_of(BlockId id) const { return id.value % blocks_per_slab_; }
  void set_slab_bytes(std::size_t bytes);
  bool add_slab();
  std::unique_ptr<Slab> new_slab(std::int64_t n_blocks) const;
  void free_slab(std::int64_t index);

  KvBlockShape shape_;
  std::size_t bytes_;  // of a block
  std::optional<std::size_t> limit_bytes_;
  StreamRef stream_;
  std::unique_ptr<BlockPool> open_;
  bool has_tables_ = true;
  TableMemory tables_;
  std::int64_t blocks_per_slab_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // null where one was given back
  std::set<std::int64_t> slabs_with_room_;    // the lowest is used first, so that others run empty
  std::vector<std::int64_t> free_slab_indices_;
  std::int64_t empty_slab_ = -1;
  std::int64_t n_blocks_in_use_ = 0;
  std::array<std::int64_t, 2> n_in_use_by_use_{};
  std::int64_t n_blocks_reserved_ = 0;
};

}  // namespace longhaul
