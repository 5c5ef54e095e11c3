// How many bytes of cache a sequence may come to need, so that the scheduler starts only what fits.
// An upper bound from the model's shape, not a measurement. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

namespace longhaul {

struct KvBudget {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  std::size_t limit_bytes = kNoLimit;
  // One token's K and V over all layers: of heads that keep everything, and of streaming heads.
  std::size_t retrieval_bytes_per_token = 0;
  std::size_t streaming_bytes_per_token = 0;
  std::int64_t window = 0;  // tokens that a streaming head keeps: sink + recent
  std::int64_t block_size = 1;
  std::int64_t chunk_len = 1;

  // Of a sequence that owns `n_tokens` tokens' caches itself (a fork owns those after its parent's,
  // and a copy of the parent's last, partly filled block).
  std::size_t bytes_for(std::int64_t n_tokens) const;
};

}  // namespace longhaul
