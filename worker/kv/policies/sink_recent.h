// Keeps the first `sink` tokens and the last `recent` ones, with an exact window: a query at p sees
// j <= p with j < sink or p - j < recent, however the prompt was cut into chunks. With absolute
// positions this is DuoAttention's training mask (Xiao et al. 2024, arXiv 2410.10819); with
// positions in the cache it is StreamingLLM (Xiao et al. 2023, arXiv 2309.17453), whose published
// code counts `recent` without the query's own token: one less than here.
#pragma once
#include <cstdint>

#include "worker/kv/policy.h"

namespace longhaul {

class SinkRecent final : public KvPolicy {
 public:
  SinkRecent(std::int64_t sink, std::int64_t recent, SinkPositions sink_positions);
  AttentionMask mask() const override { return {.sink = sink_, .recent = recent_}; }
  SinkPositions sink_positions() const override { return sink_positions_; }
  CacheDecision decide(const CacheFacts& facts) const override;

 private:
  std::int64_t sink_;
  std::int64_t recent_;
  SinkPositions sink_positions_;
};

}  // namespace longhaul
