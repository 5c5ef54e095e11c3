// Turns cache blocks into plain rows, one for each token, bit for bit: the form that files have.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

enum class KvSide { kKeys, kValues };

// What a file keeps of one side: values, or of quantised caches codes, scales and minima.
enum class RowPart { kValues, kScales, kMinima };

inline KvType kv_type_of(const KvBlockShape& shape, KvSide side) {
  return side == KvSide::kKeys ? shape.k_type : shape.v_type;
}
std::vector<RowPart> row_parts(KvType type);
// Elements of a row: head_dim values or 8-bit codes, head_dim / 2 bytes of two 4-bit codes each
// (the even dim in the lower half), or one scale or minimum.
std::int64_t row_elements(const KvBlockShape& shape, KvSide side, RowPart part);
std::size_t row_bytes(const KvBlockShape& shape, KvSide side, RowPart part);

// Copies the tokens in some slots of one block to rows. Local.
struct BlockRowsArgs {
  const KvBlockShape& shape;
  KvSide side = KvSide::kKeys;
  RowPart part = RowPart::kValues;
  const std::byte* block = nullptr;
  Extent slots;             // of the block
  std::byte* to = nullptr;  // a row for each
};
void copy_block_rows(const BlockRowsArgs& args);

// Tokens that the blocks hold, and their positions as runs without gaps.
std::int64_t n_tokens_in(std::span<const KvBlockRef> blocks);
std::vector<Extent> position_runs(std::span<const KvBlockRef> blocks);

}  // namespace longhaul
