#include "worker/attention/in_cache_sinks.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/rope.h"

namespace longhaul {

InCacheSinks::InCacheSinks(const ModelSpec& spec) : frequencies_(rope_frequencies(spec)) {
  frequencies_.attention_scale = 1.0;  // q has it already
}

void InCacheSinks::clear() {
  positions_ = {};
  turned_.clear();
  moved_.clear();
  blocks_.clear();
}

void InCacheSinks::add(const InCacheQueries& queries) {
  const auto is_other = [&](std::span<const std::int64_t> positions) {
    return positions.data() != positions_.data() || positions.size() != positions_.size();
  };
  if (positions_.empty()) {
    positions_ = queries.positions;
    window_ = queries.window;
    sink_positions_.clear();
    for (const std::int64_t position : positions_)
      sink_positions_.push_back(window_.first_recent(position) - 1);
  }
  require(!is_other(queries.positions) && queries.window == window_,
          "InCacheSinks: one list takes queries of one window at the same positions");
  // The first rows may still have all sinks among their recent tokens.
  Extent rows = queries.rows;
  while (!rows.empty() && sink_positions_[static_cast<std::size_t>(rows.begin)] < 0) ++rows.begin;
  const std::size_t first_block = blocks_.size();
  for (KvBlockRef block : queries.blocks) {
    if (block.first_position >= window_.sink) continue;
    block.n_tokens = std::min(block.n_tokens, window_.sink - block.first_position);
    blocks_.push_back(block);
  }
  const std::size_t n_blocks = blocks_.size() - first_block;
  if (rows.empty() || n_blocks == 0) return;
  if (turned_.empty() || turned_.back().data() != queries.q.data()) turned_.push_back(queries.q);
  const Extent of_state{rows.begin - queries.rows.begin, rows.end - queries.rows.begin};
  moved_.push_back({.item = {.q = queries.q.slice(0, rows).slice(1, queries.heads),
                             .q_positions = std::span<const std::int64_t>(sink_positions_)
                                                .subspan(static_cast<std::size_t>(rows.begin),
                                                         static_cast<std::size_t>(rows.size())),
                             .blocks = {},
                             .mask = {},
                             .state = queries.state.tokens(of_state)},
                    .first_block = first_block,
                    .n_blocks = n_blocks});
}

// All heads with in-cache positions share one window (require_runnable), so one set of angles
// serves them.
void InCacheSinks::set_angles(StreamRef stream) {
  if (std::ranges::equal(positions_, angle_positions_)) return;
  angle_positions_.assign(positions_.begin(), positions_.end());
  const auto n_rows = static_cast<std::int64_t>(positions_.size());
  const auto half = static_cast<std::int64_t>(frequencies_.inverse_frequencies.size());
  if (cos_.data() == nullptr || cos_.dim(0) < n_rows) {
    cos_ = DeviceTensor<float, 2>(stream, {n_rows, half});
    sin_ = DeviceTensor<float, 2>(stream, {n_rows, half});
  }
  std::vector<std::int64_t> turns;
  for (const std::int64_t position : positions_) turns.push_back(-window_.n_gone(position));
  rope_angles(stream, {.positions = turns,
                       .inverse_frequencies = frequencies_.inverse_frequencies,
                       .attention_scale = frequencies_.attention_scale,
                       .cos = cos_.view().slice(0, {0, n_rows}),
                       .sin = sin_.view().slice(0, {0, n_rows})});
}

std::span<const AttentionItem> InCacheSinks::turn_back(StreamRef stream) {
  items_.clear();
  if (moved_.empty()) return items_;
  set_angles(stream);
  for (const TensorView<float, 3>& q : turned_) {
    const Extent rows{0, q.dim(0)};
    rope(stream, {.x = q, .cos = cos_.view().slice(0, rows), .sin = sin_.view().slice(0, rows)});
  }
  for (const Moved& moved : moved_) {
    items_.push_back(moved.item);
    items_.back().blocks = std::span(blocks_).subspan(moved.first_block, moved.n_blocks);
  }
  return items_;
}

}  // namespace longhaul
