// Which keys a head keeps, and how many blocks that takes: the planner's copy of the cache's own
// closed formulas (worker/kv/cache_size.h), which a test compares.
#pragma once
#include <cstdint>

#include "model/head_profile.h"
#include "model/model_spec.h"

namespace longhaul {

// All keys, or the first `sink` and the last `recent` ones.
struct KeptKeys {
  bool all = true;
  std::int64_t sink = 0;
  std::int64_t recent = 0;
};

// In a layer where the model itself has a window every head keeps that window; elsewhere the role
// decides.
KeptKeys kept_keys(const ModelSpec& spec, const HeadRoles& roles, std::int64_t layer,
                   std::int64_t kv_head);

// Blocks held after n_tokens tokens, counting only those from number first_block on: all that a
// query at n_tokens or later can see a token of, and the partial last one.
std::int64_t kept_blocks(const KeptKeys& kept, std::int64_t block_size, std::int64_t n_tokens,
                         std::int64_t first_block = 0);
// The most blocks held at any time up to n_tokens, also in the middle of a decode step.
std::int64_t max_kept_blocks(const KeptKeys& kept, std::int64_t block_size, std::int64_t n_tokens);

// The heads of one layer, by what they keep.
struct LayerHeads {
  std::int64_t n_all = 0;       // keep everything: their keys travel round the ring
  std::int64_t n_windowed = 0;  // keep `window`: the same for all of a layer
  KeptKeys window{.all = false};
};
LayerHeads layer_heads(const ModelSpec& spec, const HeadRoles& roles, std::int64_t layer);

}  // namespace longhaul
