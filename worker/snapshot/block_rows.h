// Turns cache blocks into plain rows, one for each token, and rows into blocks, bit for bit: rows
// are the form that files have.
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

// Asks for the memory of one side's values of a block, soon to be copied: blocks lie here and
// there, and a CPU foresees only what lies in a row.
void prefetch_block_values(const KvBlockShape& shape, KvSide side, const std::byte* block);

// The other way: rows become the tokens in some slots of one block; its other slots stay as they
// are. Local.
struct FillBlockArgs {
  const KvBlockShape& shape;
  KvSide side = KvSide::kKeys;
  RowPart part = RowPart::kValues;
  const std::byte* rows = nullptr;  // one for each slot
  Extent slots;                     // of the block
  std::byte* block = nullptr;
};
void fill_block_rows(const FillBlockArgs& args);

// Neighbouring tokens of one block.
struct BlockRun {
  const std::byte* block = nullptr;
  Extent slots;
  std::int64_t first_position = 0;
  Extent positions() const { return {first_position, first_position + slots.size()}; }
};
// The tokens of `blocks`, which ascend, but for those at positions in `without`.
std::vector<BlockRun> block_runs(std::span<const KvBlockRef> blocks, Extent without);
// Of blocks whose tokens stand at these positions of the text, slot by slot.
std::vector<BlockRun> listed_runs(std::span<const KvBlockRef> blocks,
                                  std::span<const TokenPos> positions);
// How many tokens they are, and their positions as runs without gaps.
std::int64_t n_tokens_in(std::span<const BlockRun> runs);
std::vector<Extent> position_runs(std::span<const BlockRun> runs);

}  // namespace longhaul
