// Turns cache blocks into plain rows [token, head_dim], bit for bit: the form that files have.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

enum class KvSide { kKeys, kValues };

inline DType dtype_of(const KvBlockShape& shape, KvSide side) {
  return side == KvSide::kKeys ? shape.k_dtype : shape.v_dtype;
}

// Copies the tokens in slots [first_slot, first_slot + n_tokens) of one block to rows of head_dim
// elements of the cache's type. Local.
struct BlockRowsArgs {
  const KvBlockShape& shape;
  KvSide side = KvSide::kKeys;
  const std::byte* block = nullptr;
  std::int64_t first_slot = 0;
  std::int64_t n_tokens = 0;
  std::byte* to = nullptr;  // [n_tokens, head_dim]
};
void copy_block_rows(const BlockRowsArgs& args);

// Tokens that the blocks hold, and their positions as runs without gaps.
std::int64_t n_tokens_in(std::span<const KvBlockRef> blocks);
std::vector<Extent> position_runs(std::span<const KvBlockRef> blocks);

}  // namespace longhaul
