// GPU memory for tables of blocks (kernels/block_table.h), for lists of who sees which slots
// (worker/kv/seen_slots.h), whose entries are as large, and for floats beside them
// (worker/kv/pool_floats.h): pieces of powers of two, cut from slabs, so that what grows takes
// memory from the GPU, which waits for its work, seldom. Pieces that come back are given out again;
// slabs stay.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/device/device_cuda.h"

namespace longhaul {

// Used by one thread, whose stream's work alone uses the pieces.
class TableMemory {
 public:
  using Entry = const std::byte*;  // a block's address
  TableMemory() = default;
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;

  // Memory of so many entries, a power of two. Goes back when it ends.
  class Piece {
   public:
    Piece(TableMemory& memory, Entry* entries, std::int64_t capacity)
        : memory_(memory), entries_(entries), capacity_(capacity) {}
    ~Piece() { memory_.give_back(entries_, capacity_); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    Entry* entries() const { return entries_; }
    std::int64_t capacity() const { return capacity_; }

   private:
    TableMemory& memory_;
    Entry* entries_;
    std::int64_t capacity_;
  };
  // Of n_entries or more. Throws kOutOfMemory. This outlives the piece.
  std::shared_ptr<Piece> take(std::int64_t n_entries);

  // Of the GPU's memory.
  std::size_t bytes() const { return bytes_; }

 private:
  void give_back(Entry* entries, std::int64_t capacity);

  std::vector<cuda::Buffer> slabs_;
  std::array<std::vector<Entry*>, 48> free_;  // by the logarithm of their capacity
  Entry* next_ = nullptr;                     // what is left of the last slab
  std::int64_t n_left_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace longhaul
