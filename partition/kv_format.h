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
  bool operator==(const KvFormat&) const = default;
};

}  // namespace longhaul
