// Which policy caches which head of the layers that a worker serves, and in which order a layer's
// heads are handled. Heads are named in their published order everywhere; only the order of work
// groups them (retrieval heads first), so no weight is ever permuted.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"
#include "model/head_profile.h"
#include "model/model_spec.h"
#include "worker/kv/policy.h"

namespace longhaul {

class CacheLayout {
 public:
  // `layers` of the model. Retrieval heads keep everything, streaming heads roles.sink and
  // roles.recent; in a layer where the model itself has a window, every head keeps that window and
  // roles say nothing. Throws kInvalidArgument when roles and spec differ in shape.
  CacheLayout(const ModelSpec& spec, const HeadRoles& roles, Extent layers,
              const KvBlockShape& shape);

  Extent layers() const { return layers_; }
  std::int64_t n_kv_heads() const { return n_kv_heads_; }
  const KvBlockShape& shape() const { return shape_; }
  const KvPolicy& policy(std::int64_t layer, std::int64_t kv_head) const {
    return *heads_[index(layer, kv_head)];
  }
  // Whether the head keeps every token.
  bool keeps_all(std::int64_t layer, std::int64_t kv_head) const {
    return policy(layer, kv_head).mask().recent == AttentionMask::kUnlimited;
  }
  // The layer's KV heads in order of work: a permutation of [0, n_kv_heads).
  std::span<const std::int64_t> order(std::int64_t layer) const {
    return {order_.data() + index(layer, 0), static_cast<std::size_t>(n_kv_heads_)};
  }

 private:
  std::size_t index(std::int64_t layer, std::int64_t kv_head) const {
    return static_cast<std::size_t>((layer - layers_.begin) * n_kv_heads_ + kv_head);
  }
  Extent layers_;
  std::int64_t n_kv_heads_;
  KvBlockShape shape_;
  std::vector<std::unique_ptr<const KvPolicy>> policies_;
  std::vector<const KvPolicy*> heads_;  // [layers, n_kv_heads]
  std::vector<std::int64_t> order_;     // [layers, n_kv_heads]
};

// What a query of a head of this layer sees, by the model's window or by the head's role.
AttentionMask head_mask(const ModelSpec& spec, const HeadRoles& roles, std::int64_t layer,
                        std::int64_t kv_head);

}  // namespace longhaul
