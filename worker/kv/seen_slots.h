// Which query heads see the slots of a cache's first blocks, where not all of them see all: on the
// host, where methods choose, and in the device's memory, where attention reads it
// (KvBlockRef::seen_by). On CPUs these are the same.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/device/device.h"
#include "kernels/kv_block.h"
#include "worker/kv/table_memory.h"

namespace longhaul {

// Never changes; caches that were forked share it. The memory must outlive it.
class SeenSlots {
 public:
  // Throws kOutOfMemory.
  SeenSlots(std::vector<SeenBy> of_slots, TableMemory& memory, StreamRef stream);

  const std::vector<SeenBy>& of_slots() const { return of_slots_; }
  // Those from this slot on, in the device's memory.
  const SeenBy* there(std::int64_t slot) const;

 private:
  std::vector<SeenBy> of_slots_;
  std::shared_ptr<TableMemory::Piece> there_;  // on GPUs
};

}  // namespace longhaul
