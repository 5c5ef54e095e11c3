// Writes new tokens' K and V into cache blocks, converting to the block's type and layout. Local.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/device/device.h"
#include "kernels/kv_block.h"
#include "kernels/tensor.h"

namespace longhaul {

// One (sequence, layer, KV head): tokens go to slots first_slot, first_slot + 1, ... counted from
// blocks[0]'s slot 0. A block that gets a token in its first slot is new: the slots behind its
// tokens become zero. Blocks that quantise groups get whole groups of tokens (kKvGroup).
struct KvAppendItem {
  TensorView<const float, 2> k;        // [n_tokens, head_dim], rows may be strided
  TensorView<const float, 2> v;        // [n_tokens, head_dim]
  std::span<std::byte* const> blocks;  // enough for first_slot + n_tokens slots
  std::int64_t first_slot = 0;
  // [blocks.size()], GPU memory: their addresses go there, too. May be null; on CPUs it is.
  const std::byte** entries = nullptr;
  // [n_tokens]: which rows of k and v, that may have others, are the tokens'; empty: all, in order.
  std::span<const std::int32_t> rows = {};

  std::int64_t n_tokens() const {
    return rows.empty() ? k.dim(0) : static_cast<std::int64_t>(rows.size());
  }
};

struct KvAppendArgs {
  KvBlockShape shape;
  std::span<const KvAppendItem> items;  // distinct blocks; done in parallel
};

void kv_append(StreamRef stream, const KvAppendArgs& args);

// What kv_append refuses, for operators that append on their way.
void check_kv_append(Device device, const KvAppendArgs& args);

}  // namespace longhaul
