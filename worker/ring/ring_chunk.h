// One prefill chunk as every rank of a ring sees it: who makes which tokens, and which queries are
// asked. Computed alike by all.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "partition/open_blocks.h"
#include "partition/plan.h"
#include "partition/slabs.h"
#include "worker/forward.h"
#include "worker/ring/of_ring.h"

namespace longhaul {

struct RingChunk {
  RingChunk(const Stage& stage, const KvFormat& kv, Extent tokens_, WantedRows wanted_)
      : tokens(tokens_),
        wanted(wanted_),
        slabs(slabs_of_chunk(stage.token_share, tokens_, kv.block_size)),
        made(slabs_by_owner(slabs)),
        last_only(made.size()),
        stored_slabs(longhaul::stored_slabs(slabs, kv)),
        stored_made(slabs_by_owner(stored_slabs)),
        begun(begun_block(slabs, kv)),
        unfinished(unfinished_block(slabs, kv)) {
    last_only.front().push_back({tokens.end - 1, tokens.end});
  }

  Extent tokens;  // positions in the sequence
  WantedRows wanted;
  std::vector<Slab> slabs;
  OfRing<std::vector<Extent>> made;       // tokens that each computes
  OfRing<std::vector<Extent>> last_only;  // the last token alone, which the first in the ring has

  // What of it travels and is stored in blocks (partition/open_blocks.h).
  std::vector<Slab> stored_slabs;
  OfRing<std::vector<Extent>> stored_made;
  std::optional<OpenBlock> begun;
  std::optional<OpenBlock> unfinished;

  Extent stored_tokens() const {
    return {stored_slabs.front().tokens.begin, stored_slabs.back().tokens.end};
  }
  // Positions whose queries are asked in this layer.
  const OfRing<std::vector<Extent>>& queries(bool is_last_layer) const {
    return is_last_layer && wanted == WantedRows::kLast ? last_only : made;
  }
  std::int64_t n_rows(RingPos position) const {
    std::int64_t n = 0;
    for (const Extent& slab : made[position]) n += slab.size();
    return n;
  }
};

}  // namespace longhaul
