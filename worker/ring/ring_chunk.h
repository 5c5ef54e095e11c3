// One prefill chunk as every rank of a ring sees it: who makes which tokens, and which queries are
// asked. Computed alike by all.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "partition/plan.h"
#include "partition/slabs.h"
#include "worker/forward.h"
#include "worker/ring/of_ring.h"

namespace longhaul {

struct RingChunk {
  RingChunk(const Stage& stage, std::int64_t block_size, Extent tokens_, WantedRows wanted_)
      : tokens(tokens_),
        wanted(wanted_),
        slabs(slabs_of_chunk(stage.token_share, tokens_, block_size)),
        made(slabs_by_owner(slabs)),
        last_only(made.size()) {
    last_only.front().push_back({tokens.end - 1, tokens.end});
  }

  Extent tokens;  // positions in the sequence
  WantedRows wanted;
  std::vector<Slab> slabs;
  OfRing<std::vector<Extent>> made;       // tokens that each computes
  OfRing<std::vector<Extent>> last_only;  // the last token alone, which the first in the ring has

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
