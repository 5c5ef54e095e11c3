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

// What a file keeps of one side: values, or of quantised caches codes, scales and minima (fp8 has
// none).
enum class RowPart { kValues, kScales, kMinima };

inline KvType kv_type_of(const KvBlockShape& shape, KvSide side) {
  return side == KvSide::kKeys ? shape.k_type : shape.v_type;
}
std::vector<RowPart> row_parts(KvType type);
// Neighbouring tokens that a row stands for: one, but kKvGroup of scales and minima that tokens
// have together (keys of kivi4 and kivi2).
std::int64_t row_tokens(const KvBlockShape& shape, KvSide side, RowPart part);
// Elements of a row: head_dim values or 8-bit codes, head_dim / 2 or / 4 bytes of two 4-bit or four
// 2-bit codes each (the first dim in the lowest bits), one scale or minimum, or of groups those of
// all dims (keys) or of each group of dims (values).
std::int64_t row_elements(const KvBlockShape& shape, KvSide side, RowPart part);
// Columns of a data set of such rows; 0 where it is a vector.
std::int64_t row_columns(const KvBlockShape& shape, KvSide side, RowPart part);
std::size_t row_bytes(const KvBlockShape& shape, KvSide side, RowPart part);

// Types that quantise groups of tokens have rows of closed blocks only; the newest tokens are apart
// (open_rows.h). How many of a sequence's first tokens have rows: all, with other types.
std::int64_t n_closed_tokens(const KvBlockShape& shape, std::int64_t n_tokens);
// Tokens without those at the ends that are no whole group with such types.
Extent whole_groups(const KvBlockShape& shape, Extent tokens);

// Copies the tokens in some slots of one block to rows; the slots are those of whole rows. Local.
struct BlockRowsArgs {
  const KvBlockShape& shape;
  KvSide side = KvSide::kKeys;
  RowPart part = RowPart::kValues;
  const std::byte* block = nullptr;
  Extent slots;             // of the block
  std::byte* to = nullptr;  // their rows
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
  const std::byte* rows = nullptr;  // of all slots
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
