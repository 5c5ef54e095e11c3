// The layouts of kernels/kv_block.h a vector at a time: words of 32 bits between rows, one for each
// token, and blocks. Private to this folder; pure.
#pragma once
#include <cstddef>

#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Keys: rows of `n_words` words, of which a block has [n_words, block_size]. `slots` of the block
// are the rows. Codes of 4 and 2 bits change their order within a word.
struct KeyWordsArgs {
  const KvBlockShape& shape;
  Extent slots;
};
void keys_to_rows(const KeyWordsArgs& args, const std::byte* block, std::byte* rows);
void keys_from_rows(const KeyWordsArgs& args, const std::byte* rows, std::byte* block);

// Values of `kv_lanes` neighbouring tokens, whose words [head_dim] a block has together, and their
// rows.
void values_to_rows(const KvBlockShape& shape, const std::byte* words, std::byte* rows);
void values_from_rows(const KvBlockShape& shape, const std::byte* rows, std::byte* words);

}  // namespace longhaul
