// Where each row of a saved sequence stands in which file, all of it from the master, which is
// sealed: files are not asked before they are checked. Private to this folder.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "worker/snapshot/chunk_table.h"
#include "worker/snapshot/part_pieces.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

struct SavedIndex {
  struct PieceRuns {
    std::int64_t file = 0;
    std::vector<Extent> runs;  // positions of the piece's rows, in order
  };
  std::vector<SavedChunk> chunks;
  std::map<std::pair<LayerId, KvHeadId>, std::vector<PieceRuns>> heads;

  const PieceRuns* piece(const SavedChunk& chunk) const;  // null when there is none
};

// Throws kCorruptData where the master's tables do not fit one another.
SavedIndex read_saved_index(const SavedHeader& header);

}  // namespace longhaul
