#include "worker/attention/sliding_items.h"

#include <algorithm>

namespace longhaul {
namespace {

AttentionItem rows_of(const AttentionItem& item, Extent rows) {
  AttentionItem part = item;
  part.q = item.q.slice(0, rows);
  part.q_positions = item.q_positions.subspan(static_cast<std::size_t>(rows.begin),
                                              static_cast<std::size_t>(rows.size()));
  part.state = item.state.tokens(rows);
  return part;
}

}  // namespace

void SlidingItems::clear() {
  blocks_.clear();
  edges_.clear();
}

void SlidingItems::add(const AttentionItem& item, const KeyWindow& window,
                       std::vector<AttentionItem>& items) {
  const auto n_rows = static_cast<std::int64_t>(item.q_positions.size());
  const auto gone_at = [&](std::int64_t row) {
    return window.n_gone(item.q_positions[static_cast<std::size_t>(row)]);
  };
  for (std::int64_t begin = 0; begin < n_rows;) {
    std::int64_t end = begin + 1;
    while (end < n_rows && gone_at(end) == gone_at(begin)) ++end;
    AttentionItem group = rows_of(item, {begin, end});
    const std::int64_t position = group.q_positions.front();
    if (gone_at(begin) == 0) {
      group.mask = {};
      items.push_back(group);
    } else if (end - begin == 1) {
      group.mask.recent = position - window.first_recent(position) + 1;
      items.push_back(group);
    } else {
      add_group(group, window.first_recent(position), items);
    }
    begin = end;
  }
}

void SlidingItems::add_group(const AttentionItem& group, std::int64_t first_recent,
                             std::vector<AttentionItem>& items) {
  auto& whole = blocks_.emplace_back();
  auto& cut = blocks_.emplace_back();
  for (const KvBlockRef& block : group.blocks) {
    if (block.first_position >= first_recent) {
      whole.push_back(block);
      continue;
    }
    const std::int64_t n_sinks = std::min(block.n_tokens, group.mask.sink - block.first_position);
    if (n_sinks > 0) whole.push_back({block.data, block.first_position, n_sinks});
    if (block.first_position + block.n_tokens > first_recent) cut.push_back(block);
  }
  if (!whole.empty()) {
    items.push_back(group);
    items.back().mask = {};
    items.back().blocks = whole;
    items.back().table.reset();
  }
  if (cut.empty()) return;
  for (std::int64_t row = 0; row < group.q.dim(0); ++row) {
    AttentionItem edge = rows_of(group, {row, row + 1});
    edge.blocks = cut;
    edge.table.reset();
    edge.mask = {.sink = 0, .recent = edge.q_positions.front() - first_recent + 1};
    edges_.push_back(edge);
  }
}

}  // namespace longhaul
