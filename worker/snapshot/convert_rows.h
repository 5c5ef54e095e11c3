// Rows of one cache type as rows of another: what --kv-convert does. Exact where the new type holds
// the old one's values; else rounded as the cache rounds what is computed. Types that quantise
// groups of tokens are read and not made: windows leave parts of groups. Local, pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/kv_type.h"
#include "worker/snapshot/block_rows.h"

namespace longhaul {

// Keys or values of some tokens, as files hold them (block_rows.h).
struct CacheRows {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;  // these two of quantised types only
  std::vector<std::byte> minima;
};

struct RowConversion {
  KvSide side = KvSide::kKeys;
  KvType from = KvType::kF32;
  KvType to = KvType::kF32;
};
// Of n_tokens tokens: whole groups, where these have scales and minima together. Throws kInternal
// for rows that would become groups.
CacheRows convert_rows(CacheRows rows, const RowConversion& conversion, std::int64_t n_tokens,
                       std::int64_t head_dim);

}  // namespace longhaul
