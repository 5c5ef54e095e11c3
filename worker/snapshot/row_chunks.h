// What a data set of rows is written in: chunks, made of cache blocks as they stand in files, with
// HDF5's checksum behind them. Private to this folder.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/in_parallel.h"

namespace longhaul {

// One data set of a head: which side, and what of it.
struct RowSet {
  KvSide side = KvSide::kKeys;
  RowPart part = RowPart::kValues;
  auto operator<=>(const RowSet&) const = default;
};
// All of a head whose caches have this shape, in the order of files.
std::vector<RowSet> row_sets(const KvBlockShape& shape);

// Rows of one chunk, and where they begin in a head's blocks.
struct RowChunk {
  Extent rows;                    // of the data set, of row_tokens() tokens each
  std::int64_t chunk_rows = 0;    // that it has room for
  std::size_t first_run = 0;      // of the head's runs
  std::int64_t first_in_run = 0;  // slots of that run before it
};
// Of a data set whose rows stand for `n_tokens` tokens each.
std::vector<RowChunk> row_chunks(std::span<const BlockRun> runs, std::int64_t n_tokens,
                                 std::int64_t chunk_rows);

// With the checksum.
std::size_t chunk_bytes(const KvBlockShape& shape, RowSet set, const RowChunk& chunk);
// The chunk's bytes: its rows, zeros up to chunk_rows, the checksum. Any thread.
void make_chunk(const KvBlockShape& shape, RowSet set, std::span<const BlockRun> runs,
                const RowChunk& chunk, Piece& to);

}  // namespace longhaul
