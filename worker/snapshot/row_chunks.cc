#include "worker/snapshot/row_chunks.h"

#include <algorithm>

#include "worker/snapshot/fletcher32.h"

namespace longhaul {

std::vector<RowSet> row_sets(const KvBlockShape& shape) {
  std::vector<RowSet> sets;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    for (const RowPart part : row_parts(kv_type_of(shape, side)))
      sets.push_back({.side = side, .part = part});
  }
  return sets;
}

std::vector<RowChunk> row_chunks(std::span<const BlockRun> runs, std::int64_t n_tokens,
                                 std::int64_t chunk_rows) {
  const std::int64_t n_rows = n_tokens_in(runs) / n_tokens;
  std::vector<RowChunk> chunks;
  std::size_t run = 0;
  std::int64_t before = 0;  // tokens of earlier runs
  for (std::int64_t row = 0; row < n_rows; row += chunk_rows) {
    while (before + runs[run].slots.size() <= row * n_tokens) before += runs[run++].slots.size();
    chunks.push_back({.rows = {row, std::min(row + chunk_rows, n_rows)},
                      .chunk_rows = chunk_rows,
                      .first_run = run,
                      .first_in_run = row * n_tokens - before});
  }
  return chunks;
}

std::size_t chunk_bytes(const KvBlockShape& shape, RowSet set, const RowChunk& chunk) {
  return static_cast<std::size_t>(chunk.chunk_rows) * row_bytes(shape, set.side, set.part) +
         sizeof(std::uint32_t);
}

void make_chunk(const KvBlockShape& shape, RowSet set, std::span<const BlockRun> runs,
                const RowChunk& chunk, Piece& to) {
  const std::size_t n_row_bytes = row_bytes(shape, set.side, set.part);
  to.set_size(chunk_bytes(shape, set, chunk));
  const std::size_t n_bytes = to.size() - sizeof(std::uint32_t);
  std::byte* row = to.data();
  std::int64_t skip = chunk.first_in_run;
  const std::int64_t n_row_tokens = row_tokens(shape, set.side, set.part);
  std::int64_t n_left = chunk.rows.size() * n_row_tokens;
  constexpr std::size_t kAhead = 2;  // blocks: enough time for memory, few enough for the cache
  for (std::size_t i = chunk.first_run; n_left > 0; ++i, skip = 0) {
    const BlockRun& run = runs[i];
    if (set.part == RowPart::kValues && i + kAhead < runs.size())
      prefetch_block_values(shape, set.side, runs[i + kAhead].block);
    const std::int64_t begin = run.slots.begin + skip;
    const std::int64_t n = std::min(n_left, run.slots.end - begin);
    copy_block_rows({.shape = shape,
                     .side = set.side,
                     .part = set.part,
                     .block = run.block,
                     .slots = {begin, begin + n},
                     .to = row});
    row += static_cast<std::size_t>(n / n_row_tokens) * n_row_bytes;
    n_left -= n;
  }
  std::fill(row, to.data() + n_bytes, std::byte{0});
  const std::uint32_t sum = fletcher32(std::span(to).first(n_bytes));
  for (std::size_t i = 0; i < sizeof(sum); ++i)
    to.data()[n_bytes + i] = static_cast<std::byte>(sum >> 8 * i);
}

}  // namespace longhaul
