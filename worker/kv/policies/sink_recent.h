// Keeps the first `sink` tokens and the last `recent` ones, with absolute positions and an exact
// window: a query at p sees j <= p with j < sink or p - j < recent, however the prompt was cut into
// chunks (DuoAttention's training mask; Xiao et al. 2024, arXiv 2410.10819).
#pragma once
#include <cstdint>

#include "worker/kv/policy.h"

namespace longhaul {

class SinkRecent final : public KvPolicy {
 public:
  SinkRecent(std::int64_t sink, std::int64_t recent);
  AttentionMask mask() const override { return {.sink = sink_, .recent = recent_}; }
  CacheDecision decide(const CacheFacts& facts) const override;

 private:
  std::int64_t sink_;
  std::int64_t recent_;
};

}  // namespace longhaul
