// The form in which a plan counts keys and values: element types and the block, which is the unit
// of cache memory and of transfer. Plain data; the layout inside a block is the kernels' business.
#pragma once
#include <cstdint>

#include "base/kv_type.h"

namespace longhaul {

struct KvFormat {
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  std::int64_t block_size = 64;  // tokens
  std::int64_t head_dim = 0;

  // K and V of one token of one KV head.
  std::int64_t token_bytes() const {
    return kv_token_bytes(k_type, head_dim) + kv_token_bytes(v_type, head_dim);
  }
  std::int64_t block_bytes() const { return block_size * token_bytes(); }
  bool has_open_blocks() const { return quantises_groups(k_type) || quantises_groups(v_type); }
  // Of a block that holds a head's newest tokens in f32 until it is full; 0 where tokens are
  // written one by one.
  std::int64_t open_block_bytes() const {
    return has_open_blocks() ? 2 * block_size * kv_token_bytes(KvType::kF32, head_dim) : 0;
  }
  // Of so many blocks, of which n_open are open, where there are open ones.
  std::int64_t bytes_of(std::int64_t n_blocks, std::int64_t n_open) const {
    const std::int64_t n_f32 = has_open_blocks() ? n_open : 0;
    return (n_blocks - n_f32) * block_bytes() + n_f32 * open_block_bytes();
  }
  bool operator==(const KvFormat&) const = default;
};

}  // namespace longhaul
