#include "worker/attention/open_items.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul {
namespace {

AttentionItem queries_of(const AttentionItem& item, Extent rows,
                         std::span<const KvBlockRef> blocks) {
  AttentionItem part = item;
  part.q = item.q.slice(0, rows);
  part.q_positions = item.q_positions.subspan(static_cast<std::size_t>(rows.begin),
                                              static_cast<std::size_t>(rows.size()));
  part.blocks = blocks;
  part.table.reset();
  part.state = item.state.tokens(rows);
  return part;
}

// Of ascending blocks: the number of those before this position.
std::size_t n_before(std::span<const KvBlockRef> blocks, std::int64_t position) {
  const auto at = std::lower_bound(
      blocks.begin(), blocks.end(), position,
      [](const KvBlockRef& block, std::int64_t p) { return block.first_position < p; });
  return static_cast<std::size_t>(at - blocks.begin());
}

bool sees_all(const AttentionMask& mask) { return mask.recent == AttentionMask::kUnlimited; }

}  // namespace

std::span<const std::int64_t> OpenItems::before_own(std::span<const std::int64_t> positions,
                                                    std::int64_t block_size) {
  const auto [at, is_new] = before_own_.try_emplace({positions.data(), positions.size()});
  if (is_new) {
    for (const std::int64_t position : positions)
      at->second.push_back(position / block_size * block_size - 1);
  }
  return at->second;
}

// All queries but those of the sequence's first block, which meet nothing closed.
void OpenItems::add_closed(const AttentionItem& item, std::int64_t block_size,
                           std::vector<AttentionItem>& closed) {
  const auto first = std::ranges::lower_bound(item.q_positions, block_size);
  const Extent rows{first - item.q_positions.begin(), std::ssize(item.q_positions)};
  if (rows.empty() || item.blocks.empty()) return;
  AttentionItem& part = closed.emplace_back(queries_of(item, rows, item.blocks));
  part.q_positions = before_own(part.q_positions, block_size);
  part.table = item.table;
}

void OpenItems::add(const AttentionItem& item, std::int64_t block_size,
                    std::span<const KvBlockRef> open, std::vector<AttentionItem>& closed) {
  const auto n_rows = static_cast<std::int64_t>(item.q_positions.size());
  const auto block_of = [&](std::int64_t row) {
    return item.q_positions[static_cast<std::size_t>(row)] / block_size * block_size;
  };
  if (sees_all(item.mask)) add_closed(item, block_size, closed);
  for (std::int64_t begin = 0; begin < n_rows;) {
    const std::int64_t first = block_of(begin);
    std::int64_t end = begin + 1;
    while (end < n_rows && block_of(end) == first) ++end;
    if (!sees_all(item.mask)) {
      const auto before = item.blocks.first(n_before(item.blocks, first));
      if (!before.empty()) closed.push_back(queries_of(item, {begin, end}, before));
    }
    if (!open.empty()) {
      const std::size_t own = n_before(open, first);
      require(own < open.size() && open[own].first_position == first,
              "OpenItems: the open block of a query's own token is missing");
      open_.push_back(queries_of(item, {begin, end}, open.subspan(own, 1)));
    }
    begin = end;
  }
}

}  // namespace longhaul
