// Caches from the chunks of saved files in one pass: each is read once, by one of a few threads,
// checked, and its rows go to blocks. HDF5 has no part in it. Private to this folder.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "worker/snapshot/rows_to_blocks.h"
#include "worker/snapshot/saved_header.h"
#include "worker/snapshot/saved_index.h"

namespace longhaul {

struct FillFromChunksArgs {
  const SavedHeader& header;
  const SavedIndex& index;
  const KvBlockShape& shape;  // with the files' types
  // Blocks of a head to be filled, ascending; on the host.
  const std::map<std::pair<LayerId, KvHeadId>, std::span<const BlockToFill>>& blocks;
  // Whether this rank checks the whole of a file, by its number: what nobody's blocks need too.
  std::function<bool(std::size_t)> checks;
};

// Local; blocks. Throws kCorruptData naming the file and what of it is damaged: the blocks may hold
// anything then.
void fill_from_chunks(const FillFromChunksArgs& args);

// Every byte of one part, also rows that are used no more. Throws as above.
void check_chunks(const SavedHeader& header, const WrittenFile& part);

}  // namespace longhaul
