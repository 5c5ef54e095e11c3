// Moves tokens from one cache block to another as they are stored, without converting them: for
// blocks that arrive from other ranks and continue a block that is here. Local.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Slots [from_slot, from_slot + n_tokens) of `from` become slots to_slot, to_slot + 1, ... of `to`;
// the other slots of `to` stay as they are. Of
// types that quantise groups, whole blocks only.
struct KvCopyItem {
  const std::byte* from = nullptr;
  std::int64_t from_slot = 0;
  std::byte* to = nullptr;  // another block, or other slots of the same
  std::int64_t to_slot = 0;
  std::int64_t n_tokens = 0;
};

struct KvCopyArgs {
  KvBlockShape shape;
  std::span<const KvCopyItem> items;  // distinct `to`
};

void kv_copy(StreamRef stream, const KvCopyArgs& args);

}  // namespace longhaul
