// How many bytes of cache a sequence may come to need, so that the scheduler starts only what fits.
// A bound from what each head keeps (model/heads/kept_blocks.h), not a measurement. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/ids.h"
#include "model/heads/head_table.h"

namespace longhaul {

struct KvBudget {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  std::size_t limit_bytes = kNoLimit;
  HeadTable heads = {};                      // of the whole model; of none, nothing takes any bytes
  std::size_t bytes_per_head_and_token = 0;  // K and V of one token of one head
  std::size_t open_bytes_per_head_and_token = 0;  // of open blocks, where there are any
  std::int64_t block_size = 1;                    // tokens
  std::int64_t chunk_len = 1;  // tokens that one step computes for a sequence, at most
  std::int64_t n_guesses = 0;  // of a decode step for a sequence, at most

  // Of a sequence that made the tokens at positions `made` itself: [0, n) of one that is no fork,
  // what comes after its parent's for a fork, which has a copy of the block that both are in.
  std::size_t bytes_for(Extent made) const;
};

}  // namespace longhaul
