#include "worker/kv/seen_slots.h"

#include <span>
#include <utility>

#include "base/device/device_memory.h"

namespace longhaul {

static_assert(sizeof(SeenBy) == sizeof(TableMemory::Entry));

SeenSlots::SeenSlots(std::vector<SeenBy> of_slots, TableMemory& memory, StreamRef stream)
    : of_slots_(std::move(of_slots)) {
  if (stream.device() == Device::kCpu) return;
  there_ = memory.take(static_cast<std::int64_t>(of_slots_.size()));
  copy_from_host(stream, reinterpret_cast<std::byte*>(there_->entries()),
                 std::as_bytes(std::span(of_slots_)));
}

const SeenBy* SeenSlots::there(std::int64_t slot) const {
  const SeenBy* first =
      there_ == nullptr ? of_slots_.data() : reinterpret_cast<const SeenBy*>(there_->entries());
  return first + slot;
}

}  // namespace longhaul
