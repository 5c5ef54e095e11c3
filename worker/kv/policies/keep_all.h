// Keeps every token: retrieval heads and dense models.
#pragma once
#include "worker/kv/policy.h"

namespace longhaul {

class KeepAll final : public KvPolicy {
 public:
  AttentionMask mask() const override { return {}; }
  CacheDecision decide(const CacheFacts&) const override { return {}; }
};

}  // namespace longhaul
