// One prefill chunk as every rank of a ring sees it: who makes which tokens, and which queries are
// asked. Computed alike by all.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "partition/plan.h"
#include "partition/slabs.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

enum class WantedRows {
  kLast,  // of the model's last layer only the chunk's last token is computed
  kAll,   // every token is scored
};

struct RingChunk {
  RingChunk(const Stage& stage, std::int64_t block_size, Extent tokens_, WantedRows wanted_)
      : tokens(tokens_),
        wanted(wanted_),
        slabs(slabs_of_chunk(stage.token_share, tokens_, block_size)),
        made(slabs_by_owner(slabs)),
        last_only(made.size()) {
    last_only.front().push_back({tokens.end - 1, tokens.end});  // with ring position 0
  }

  Extent tokens;  // positions in the sequence
  WantedRows wanted;
  std::vector<Slab> slabs;
  std::vector<std::vector<Extent>> made;       // [ring] tokens that each position computes
  std::vector<std::vector<Extent>> last_only;  // [ring] the last token alone

  // [ring] positions whose queries are asked in this layer.
  const std::vector<std::vector<Extent>>& queries(bool is_last_layer) const {
    return is_last_layer && wanted == WantedRows::kLast ? last_only : made;
  }
  std::int64_t n_rows(std::int64_t position) const {
    std::int64_t n = 0;
    for (const Extent& slab : made[static_cast<std::size_t>(position)]) n += slab.size();
    return n;
  }
};

}  // namespace longhaul
