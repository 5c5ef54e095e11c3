#include "worker/kv/cache_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace longhaul {
namespace {

std::int64_t window_of(const ModelSpec& spec, std::int64_t layer) {
  const auto i = static_cast<std::size_t>(layer);
  return i < spec.attention_window.size() ? spec.attention_window[i] : ModelSpec::kNoWindow;
}

bool is_unlimited(const AttentionMask& mask) { return mask.recent == AttentionMask::kUnlimited; }

}  // namespace

AttentionMask head_mask(const ModelSpec& spec, const HeadRoles& roles, std::int64_t layer,
                        std::int64_t kv_head) {
  const std::int64_t window = window_of(spec, layer);
  if (window != ModelSpec::kNoWindow) return {.sink = 0, .recent = window};
  if (roles.role(layer, kv_head) == HeadRole::kRetrieval) return {};
  return {.sink = roles.sink, .recent = roles.recent};
}

CacheLayout::CacheLayout(const ModelSpec& spec, const HeadRoles& roles, Extent layers,
                         const KvBlockShape& shape)
    : layers_(layers), n_kv_heads_(spec.n_kv_heads), shape_(shape) {
  require(roles.n_layers == spec.n_layers && roles.n_kv_heads == spec.n_kv_heads &&
              roles.roles.size() == static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads),
          fmt::format("head roles are for {} layers of {} KV heads, the model has {} of {}",
                      roles.n_layers, roles.n_kv_heads, spec.n_layers, spec.n_kv_heads));
  require(0 <= layers.begin && layers.begin <= layers.end && layers.end <= spec.n_layers,
          fmt::format("layers [{}, {}) of a model with {} layers", layers.begin, layers.end,
                      spec.n_layers));
  // By sink, recent, and whether they are the model's own.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, const KvPolicy*> made;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const bool is_windowed = window_of(spec, layer) != ModelSpec::kNoWindow;
    for (std::int64_t kv_head = 0; kv_head < n_kv_heads_; ++kv_head) {
      const AttentionMask mask = head_mask(spec, roles, layer, kv_head);
      const KvPolicy*& policy = made[{mask.sink, mask.recent, is_windowed}];
      if (policy == nullptr) {
        policies_.push_back(make_kv_policy(
            {.kind = is_unlimited(mask) ? KvPolicyKind::kKeepAll : KvPolicyKind::kSinkRecent,
             .sink = mask.sink,
             .recent = mask.recent,
             .sink_positions = is_windowed ? SinkPositions::kAbsolute : roles.sink_positions}));
        policy = policies_.back().get();
      }
      heads_.push_back(policy);
      order_.push_back(kv_head);
    }
    std::stable_partition(order_.end() - n_kv_heads_, order_.end(), [&](std::int64_t kv_head) {
      return is_unlimited(head_mask(spec, roles, layer, kv_head));
    });
  }
}

}  // namespace longhaul
