#include "worker/kv/policy.h"

#include "base/error.h"
#include "worker/kv/policies/keep_all.h"
#include "worker/kv/policies/sink_recent.h"

namespace longhaul {

std::unique_ptr<const KvPolicy> make_kv_policy(const KvPolicyConfig& config) {
  switch (config.kind) {
    case KvPolicyKind::kKeepAll:
      return std::make_unique<KeepAll>();
    case KvPolicyKind::kSinkRecent:
      return std::make_unique<SinkRecent>(config.sink, config.recent, config.sink_positions);
  }
  throw Error(ErrorCode::kInternal, "unknown KvPolicyKind");
}

}  // namespace longhaul
