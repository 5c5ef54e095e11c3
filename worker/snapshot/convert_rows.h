// Rows of one cache type as rows of another: what --kv-convert does. Exact where the new type holds
// the old one's values; else rounded as the cache rounds what is computed. Local, pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/kv_type.h"

namespace longhaul {

// Keys or values of some tokens, as files hold them (block_rows.h).
struct CacheRows {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;  // these two of quantised types only
  std::vector<std::byte> minima;
};

CacheRows convert_rows(CacheRows rows, KvType from, KvType to, std::int64_t n_tokens,
                       std::int64_t head_dim);

}  // namespace longhaul
