// Blocks of cache that a fork has for itself: what bytes in use are compared with.
#pragma once
#include "model/heads/kept_blocks.h"

namespace longhaul::test {

// What a fork adds to its parent, which it left at n_shared tokens, when it has grown to n_tokens:
// nothing at first; then its copy of the partial last block and all after it. Where tokens are
// quantised in groups, open_blocks of them are open.
inline std::int64_t fork_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                                std::int64_t n_shared, std::int64_t n_tokens) {
  if (n_tokens == n_shared) return 0;
  std::int64_t sum = 0;
  for (const LayerId layer : IdRange<LayerId>(layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads()))
      sum += kept_blocks(heads.window(layer, kv_head), block_size, n_tokens, n_shared / block_size);
  }
  return sum;
}

}  // namespace longhaul::test
