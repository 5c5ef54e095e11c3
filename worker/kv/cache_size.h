// How many bytes of cache a sequence takes: closed formulas, exact after every step. Pure; nothing
// here looks at a cache, so that the cache can be tested against it and a planner can ask before
// anything exists.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "kernels/attention.h"
#include "kernels/kv_block.h"
#include "model/head_profile.h"
#include "model/model_spec.h"

namespace longhaul {

// Blocks that one head with this mask holds after n_tokens tokens, counting only blocks from number
// `first_block` on (block b covers positions [b * block_size, (b + 1) * block_size)). A full block
// is kept while a query at n_tokens or later can see one of its tokens; the partial last one
// always.
std::int64_t head_cache_blocks(const AttentionMask& mask, std::int64_t block_size,
                               std::int64_t n_tokens, std::int64_t first_block = 0);

struct CacheSizeArgs {
  const ModelSpec& spec;
  const HeadRoles& roles;
  Extent layers;  // those of one stage, or [0, n_layers)
  KvBlockShape shape;
};

// Of a sequence of n_tokens tokens that shares nothing.
std::size_t sequence_cache_bytes(const CacheSizeArgs& args, std::int64_t n_tokens);

// What a fork adds to its parent, which it left at n_shared tokens, when it has grown to n_tokens:
// nothing at first; then its copy of the partial last block and all after it.
std::size_t fork_cache_bytes(const CacheSizeArgs& args, std::int64_t n_shared,
                             std::int64_t n_tokens);

}  // namespace longhaul
