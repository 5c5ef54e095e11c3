// A cache's blocks by number, in the GPU's memory (kernels/block_table.h), and how much of it is
// right there. kv_append writes the addresses of the blocks that it fills, so that a decode step
// uploads none; whatever else changes blocks says from which number on, and those are uploaded when
// the table is asked for next.
//
//   sink 4, window 8, blocks of 4, 20 tokens:   numbers 0 1 2 3 4    blocks() 0 3 4    gone [1, 3)
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/block_table.h"
#include "kernels/kv_block.h"
#include "worker/kv/table_memory.h"

namespace longhaul {

// Of one HeadCache, by whose thread it is used; the memory must outlive it.
class DeviceTable {
 public:
  DeviceTable(TableMemory& memory, StreamRef stream, std::int64_t block_size)
      : memory_(&memory), stream_(stream), block_size_(block_size) {}

  // Blocks may be others now, in ways that are found out when they are next asked for.
  void forget_form() { has_form_ = false; }
  // Those from this one on (an index of blocks()) may be others, or gone at the end.
  void changed_from(std::int64_t index);
  // Blocks [index, index + n) of the list went away, which nobody asks for any more.
  void gave_up(std::int64_t index, std::int64_t n);
  // Of a fork that has the same blocks, of which the first n_full are full.
  std::unique_ptr<DeviceTable> fork(std::int64_t n_full);

  // Where kv_append writes the addresses of the blocks from blocks[index] on, which it does next.
  // Null where the blocks cannot be said by number.
  TableMemory::Entry* entries_of(std::span<const KvBlockRef> blocks, std::int64_t index);
  // Empty where the blocks cannot be said by number.
  std::optional<BlockTable> table(std::span<const KvBlockRef> blocks);

 private:
  std::int64_t number_of(std::int64_t index) const {
    return index < gone_.begin || gone_.empty() ? index : index + gone_.size();
  }
  std::int64_t first_position(std::span<const KvBlockRef> blocks) const;
  bool has_form(std::span<const KvBlockRef> blocks);
  void find_form(std::span<const KvBlockRef> blocks);
  void make_room(std::int64_t n_numbers);
  void upload(std::span<const KvBlockRef> blocks, std::int64_t end);

  TableMemory* memory_;
  StreamRef stream_;
  std::int64_t block_size_;
  bool has_form_ = false;    // what follows is true of the blocks, up to what was appended since
  bool is_regular_ = false;  // their positions are those of their numbers
  Extent gone_;
  std::shared_ptr<TableMemory::Piece> shared_;  // of blocks [0, n_shared_)
  std::shared_ptr<TableMemory::Piece> own_;     // of those behind
  std::int64_t n_shared_ = 0;
  std::int64_t n_written_ = 0;  // numbers whose entries are right, or gone
};

}  // namespace longhaul
