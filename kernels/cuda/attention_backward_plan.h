// How attention_backward.cu cuts its work: what each query sees, and which queries meet each tile
// of keys. Pure.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/backward/attention_backward.h"

namespace longhaul::cuda {

inline constexpr int kBackwardTile = 32;  // rows (queries x heads of a group), and keys
// Rows of a task of keys_kernel, where more than the window's would meet its keys.
inline constexpr std::int64_t kTaskRows = 2048;

// The keys that a query sees, by their index: [0, sink_end) and [begin, end).
struct Seen {
  std::int64_t sink_end;
  std::int64_t begin;
  std::int64_t end;
};
// Keys [tile kBackwardTile, + kBackwardTile) against queries [first, last).
struct KeyTask {
  std::int64_t tile;
  std::int64_t first_query;
  std::int64_t last_query;
  std::int64_t partial;  // where its share goes, or -1: there are no others
};
// The shares [first, first + n) of a tile.
struct KeyShares {
  std::int64_t tile;
  std::int64_t first_partial;
  std::int64_t n;
};

inline std::vector<Seen> seen_of(const AttentionBackwardArgs& args) {
  const auto& keys = args.k_positions;
  const auto first_key = [&](std::int64_t position) {
    return std::lower_bound(keys.begin(), keys.end(), position) - keys.begin();
  };
  std::vector<Seen> out;
  out.reserve(args.q_positions.size());
  for (const std::int64_t at : args.q_positions) {
    const std::int64_t lowest = args.mask.recent > at ? 0 : at - args.mask.recent + 1;
    const std::int64_t begin = first_key(lowest);
    out.push_back({.sink_end = std::min(first_key(std::min(args.mask.sink, at + 1)), begin),
                   .begin = begin,
                   .end = first_key(at + 1)});
  }
  return out;
}

struct KeyPlan {
  std::vector<KeyTask> tasks;
  std::vector<KeyShares> shares;
  std::int64_t n_partials = 0;
};

// Who sees each tile: queries [first, last) by the window, all from `first` on where it has sinks.
inline KeyPlan plan_keys(const std::vector<Seen>& seen, std::int64_t n_keys,
                         std::int64_t gqa_group) {
  const auto n_queries = static_cast<std::int64_t>(seen.size());
  const std::int64_t n_tiles = ceil_div(n_keys, kBackwardTile);
  std::vector<Extent> windows;  // [n_tiles] of queries
  std::int64_t n_most = std::max<std::int64_t>(1, kTaskRows / gqa_group);
  Extent queries{0, 0};
  for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
    const std::int64_t key = tile * kBackwardTile;
    const auto at = [&](std::int64_t i) { return seen[static_cast<std::size_t>(i)]; };
    while (queries.begin < n_queries && at(queries.begin).end <= key) ++queries.begin;
    while (queries.end < n_queries && at(queries.end).begin < key + kBackwardTile) ++queries.end;
    windows.push_back({queries.begin, std::max(queries.begin, queries.end)});
    n_most = std::max(n_most, windows.back().size());
  }
  KeyPlan plan;
  for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
    Extent window = windows[static_cast<std::size_t>(tile)];
    const bool has_sinks = n_queries > 0 && seen.back().sink_end > tile * kBackwardTile;
    if (has_sinks) window.end = n_queries;
    const std::int64_t n_parts = std::max<std::int64_t>(1, ceil_div(window.size(), n_most));
    if (n_parts > 1) plan.shares.push_back({tile, plan.n_partials, n_parts});
    for (std::int64_t part = 0; part < n_parts; ++part) {
      const std::int64_t first = window.begin + part * n_most;
      plan.tasks.push_back({.tile = tile,
                            .first_query = first,
                            .last_query = std::min(window.end, first + n_most),
                            .partial = n_parts > 1 ? plan.n_partials++ : -1});
    }
  }
  return plan;
}

}  // namespace longhaul::cuda
