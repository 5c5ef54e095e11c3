#include "worker/attention/compensation.h"

namespace longhaul {

Compensation::Compensation(const ModelSpec& spec, const CacheLayout& layout, StreamRef stream)
    : layout_(layout), stream_(stream), sm_scale_(spec.sm_scale()) {}

void Compensation::begin(LayerId layer) {
  layer_ = layer;
  items_.clear();
}

CompensateItem Compensation::item(KvHeadId kv_head, GoneSums& sums,
                                  std::span<const KvBlockRef> blocks, TokenPos next) const {
  const KeyWindow window = layout_.window(layer_, kv_head);
  return {.sums = &sums,
          .blocks = blocks,
          .sink = window.sink,
          .recent = window.recent,
          .next_position = next.value};
}

void Compensation::let_go(KvHeadId kv_head, GoneSums& sums, std::span<const KvBlockRef> blocks,
                          TokenPos next) {
  items_.push_back(item(kv_head, sums, blocks, next));
}

void Compensation::add(const QueryRows& queries, KvHeadId kv_head, Extent rows, GoneSums& sums,
                       std::span<const KvBlockRef> blocks, TokenPos next) {
  CompensateItem with_queries = item(kv_head, sums, blocks, next);
  const Extent heads = queries.heads_of(kv_head);
  with_queries.q = queries.q.slice(0, rows).slice(1, heads);
  with_queries.q_positions = queries.positions.subspan(static_cast<std::size_t>(rows.begin),
                                                       static_cast<std::size_t>(rows.size()));
  with_queries.state = queries.state.tokens(rows).heads(heads);
  items_.push_back(with_queries);
}

void Compensation::run() {
  if (items_.empty()) return;
  compensate(stream_, {.shape = layout_.shape(), .sm_scale = sm_scale_, .items = items_});
}

}  // namespace longhaul
