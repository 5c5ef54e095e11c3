#include "worker/kv/policies/sink_recent.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul {

SinkRecent::SinkRecent(std::int64_t sink, std::int64_t recent, SinkPositions sink_positions)
    : sink_(sink), recent_(recent), sink_positions_(sink_positions) {
  require(sink >= 0, fmt::format("streaming window: sink is {}, it must not be negative", sink));
  require(
      recent >= 1,
      fmt::format("streaming window: recent is {}, it must be at least 1 (it counts the query's "
                  "own token)",
                  recent));
}

CacheDecision SinkRecent::decide(const CacheFacts& facts) const {
  // The next query, at position n_tokens, is the one that sees furthest back.
  const std::int64_t first_recent = facts.n_tokens - recent_ + 1;
  return {.hidden = {sink_, std::max(sink_, first_recent)}};
}

}  // namespace longhaul
