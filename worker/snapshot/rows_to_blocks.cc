#include "worker/snapshot/rows_to_blocks.h"

#include <algorithm>

namespace longhaul {

std::vector<RowsToBlock> rows_to_blocks(std::span<const Extent> runs, Extent rows,
                                        std::span<const BlockToFill> blocks) {
  std::vector<RowsToBlock> taken;
  std::int64_t row = 0;  // of the run's first position
  for (const Extent& run : runs) {
    if (row >= rows.end) break;
    const Extent wanted{std::max(run.begin, run.begin + rows.begin - row),
                        std::min(run.end, run.begin + rows.end - row)};
    auto block = std::lower_bound(
        blocks.begin(), blocks.end(), wanted.begin,
        [](const BlockToFill& b, std::int64_t position) { return b.positions.end <= position; });
    for (; block != blocks.end() && block->positions.begin < wanted.end; ++block) {
      const Extent here{std::max(wanted.begin, block->positions.begin),
                        std::min(wanted.end, block->positions.end)};
      if (here.empty()) continue;
      const std::int64_t first = row + here.begin - run.begin;
      const std::int64_t slot = block->first_slot + here.begin - block->positions.begin;
      taken.push_back({.rows = {first, first + here.size()},
                       .slots = {slot, slot + here.size()},
                       .block = block->data});
    }
    row += run.size();
  }
  return taken;
}

}  // namespace longhaul
