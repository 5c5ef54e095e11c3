// Closes blocks: what whole open blocks of f32 hold goes into blocks of types that quantise groups
// of tokens (kernels/kv_block.h), which cannot be written token by token. Local.
#pragma once
#include <cstddef>
#include <span>

#include "base/device/device.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Blocks of f32 for as many tokens as a closed block has.
inline KvBlockShape open_block_shape(const KvBlockShape& closed) {
  return {.block_size = closed.block_size, .head_dim = closed.head_dim};
}

struct KvCloseItem {
  const std::byte* open = nullptr;  // full
  std::byte* closed = nullptr;      // written whole
  const std::byte** entry =
      nullptr;  // GPU memory: the address of `closed` goes there, too, or null
};

struct KvCloseArgs {
  KvBlockShape shape;                  // of the closed blocks
  std::span<const KvCloseItem> items;  // distinct `closed`; done in parallel
};

void kv_close(StreamRef stream, const KvCloseArgs& args);

}  // namespace longhaul
