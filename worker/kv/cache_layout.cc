#include "worker/kv/cache_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul {

AttentionMask attention_mask(const KeyWindow& window) {
  static_assert(KeyWindow::kUnlimited == AttentionMask::kUnlimited);
  return {.sink = window.sink, .recent = window.recent};
}

CacheLayout::CacheLayout(const HeadTable& heads, Extent layers, const KvBlockShape& shape)
    : heads_(heads), layers_(layers), shape_(shape) {
  require(0 <= layers.begin && layers.begin <= layers.end && layers.end <= heads.n_layers(),
          fmt::format("layers [{}, {}) of a model with {} layers", layers.begin, layers.end,
                      heads.n_layers()));
  require_runnable(heads, RunsOn::kOneRank);
  require_whole_pages(heads, shape.block_size);
  require_storable(heads, shape.k_type, shape.v_type);
  for (const LayerId layer : layer_ids()) {
    for (const KvHeadId kv_head : kv_head_ids()) order_.push_back(kv_head);
    std::stable_partition(order_.end() - n_kv_heads(), order_.end(),
                          [&](KvHeadId kv_head) { return sees_all(layer, kv_head); });
  }
}

}  // namespace longhaul
