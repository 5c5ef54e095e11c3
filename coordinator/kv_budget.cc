#include "coordinator/kv_budget.h"

#include "model/heads/kept_blocks.h"

namespace longhaul {

std::size_t KvBudget::bytes_for(Extent made) const {
  const std::int64_t n_blocks = max_owned_blocks(heads, block_size, made, chunk_len, n_guesses);
  const std::size_t closed =
      static_cast<std::size_t>(n_blocks * block_size) * bytes_per_head_and_token;
  if (open_bytes_per_head_and_token == 0 || made.empty()) return closed;
  const std::int64_t n_open = max_open_blocks(heads, block_size, chunk_len, n_guesses);
  return closed + static_cast<std::size_t>(n_open * block_size) * open_bytes_per_head_and_token;
}

}  // namespace longhaul
