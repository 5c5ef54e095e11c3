// What a KV head keeps. Interface 3 of 4 (docs/design.md): a policy decides on metadata only; the
// cache (head_cache.h) moves the bytes. Policies hold no state of a sequence: one object serves all
// sequences, and what it needs to know arrives as an argument.
//
// Methods that choose slots by attention scores (SnapKV, H2O, TOVA, ...) fit as further fields: the
// scores they ask for in CacheFacts, the slots they keep in CacheDecision.
#pragma once
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "kernels/attention.h"
#include "model/head_profile.h"

namespace longhaul {

// What is known of one (sequence, layer, KV head) after its newest tokens were attended to.
struct CacheFacts {
  std::int64_t n_tokens = 0;  // seen so far, kept or not: the next query has this position
};

// What may go.
struct CacheDecision {
  Extent hidden;  // positions that no query from here on sees: whole blocks of them are freed
};

class KvPolicy {
 public:
  virtual ~KvPolicy() = default;
  // Which keys a query sees. Local.
  virtual AttentionMask mask() const = 0;
  // At which positions it sees those before its recent ones. Local.
  virtual SinkPositions sink_positions() const { return SinkPositions::kAbsolute; }
  // Called once per step and layer. Local.
  virtual CacheDecision decide(const CacheFacts& facts) const = 0;
};

enum class KvPolicyKind {
  kKeepAll,     // every token, for ever: retrieval heads, dense models
  kSinkRecent,  // the first `sink` tokens and the last `recent`, exactly: streaming heads
                // (DuoAttention, StreamingLLM), sliding windows (sink = 0)
};

struct KvPolicyConfig {
  KvPolicyKind kind = KvPolicyKind::kKeepAll;
  std::int64_t sink = 0;
  std::int64_t recent = 0;  // the query's own token counts: at least 1
  SinkPositions sink_positions = SinkPositions::kAbsolute;
};

// The one factory of policies. Throws kInvalidArgument.
std::unique_ptr<const KvPolicy> make_kv_policy(const KvPolicyConfig& config);

}  // namespace longhaul
