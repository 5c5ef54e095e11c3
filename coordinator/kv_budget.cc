#include "coordinator/kv_budget.h"

#include <algorithm>

#include "base/ids.h"

namespace longhaul {

std::size_t KvBudget::bytes_for(std::int64_t n_tokens) const {
  // One block more than the tokens fill: a fork copies its parent's last block. While a chunk is
  // computed, a streaming head holds that chunk beside its window.
  const std::int64_t whole = (ceil_div(n_tokens, block_size) + 1) * block_size;
  const std::int64_t windowed = std::min(whole, window + chunk_len + 2 * block_size);
  return static_cast<std::size_t>(whole) * retrieval_bytes_per_token +
         static_cast<std::size_t>(windowed) * streaming_bytes_per_token;
}

}  // namespace longhaul
