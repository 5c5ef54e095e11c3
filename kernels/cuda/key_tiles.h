// A head's cached keys as kernels take them that go through all keys, a tile at a time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/gpu_memory.h"
#include "kernels/kv_block.h"

namespace longhaul::cuda {

// Neighbouring slots of a block.
struct KeyTile {
  const std::byte* block;
  std::int64_t first_position;
  std::int64_t first_key;  // its number among all keys
  std::int32_t first_slot;
  std::int32_t n_keys;
  const SeenBy* seen_by;  // of the first slot; null: all heads see all
};
static_assert(sizeof(KeyTile) == kKeyScoreTileBytes);

inline std::vector<KeyTile> tiles_of(std::span<const KvBlockRef> blocks) {
  std::vector<KeyTile> tiles;
  std::int64_t n_keys = 0;
  for (const KvBlockRef& block : blocks) {
    for (std::int64_t slot = 0; slot < block.n_tokens; slot += kKeysOfScoreTile) {
      const std::int64_t n = std::min(kKeysOfScoreTile, block.n_tokens - slot);
      tiles.push_back({block.data, block.first_position + slot, n_keys + slot,
                       static_cast<std::int32_t>(slot), static_cast<std::int32_t>(n),
                       block.seen_by == nullptr ? nullptr : block.seen_by + slot});
    }
    n_keys += block.n_tokens;
  }
  return tiles;
}

}  // namespace longhaul::cuda
