#include "worker/attention/attention_work.h"

#include "kernels/kv_close.h"

namespace longhaul {

AttentionWork::AttentionWork(const ModelSpec& spec, const CacheLayout& layout, StreamRef stream)
    : layout_(layout), stream_(stream), sm_scale_(spec.sm_scale()), in_cache_sinks_(spec) {}

void AttentionWork::begin(LayerId layer) {
  layer_ = layer;
  items_.clear();
  in_cache_sinks_.clear();
  sliding_.clear();
  open_.clear();
}

void AttentionWork::add(const QueryRows& queries, KvHeadId kv_head, Extent rows,
                        const Blocks& blocks) {
  if ((blocks.closed.empty() && blocks.open.empty()) || rows.empty()) return;
  const Extent heads = queries.heads_of(kv_head);
  AttentionItem item{
      .q = queries.q.slice(0, rows).slice(1, heads),
      .q_positions = queries.positions.subspan(static_cast<std::size_t>(rows.begin),
                                               static_cast<std::size_t>(rows.size())),
      .blocks = blocks.closed,
      .table = blocks.table,
      .mask = layout_.mask(layer_, kv_head),
      .state = queries.state.tokens(rows).heads(heads)};
  if (layout_.has_open_blocks()) {
    open_.add(item, layout_.shape().block_size, blocks.open, items_);
    return;
  }
  if (layout_.is_in_cache(layer_, kv_head)) {
    in_cache_sinks_.add({.q = queries.q,
                         .positions = queries.positions,
                         .rows = rows,
                         .heads = heads,
                         .window = layout_.window(layer_, kv_head),
                         .blocks = blocks.closed,
                         .state = item.state});
    item.mask.sink = 0;  // but for those among the recent tokens they are attended to apart
  }
  const KeyWindow window = layout_.window(layer_, kv_head);
  if (window.slide == 1) {
    items_.push_back(item);
  } else {
    sliding_.add(item, window, items_);
  }
}

void AttentionWork::add_seen(const QueryRows& queries, Extent heads,
                             std::span<const KvBlockRef> blocks, const AttentionMask& mask) {
  items_.push_back({.q = queries.q.slice(1, heads),
                    .q_positions = queries.positions,
                    .blocks = blocks,
                    .mask = mask,
                    .state = queries.state.heads(heads)});
}

void AttentionWork::run(SumOrder order) {
  const KvBlockShape& shape = layout_.shape();
  const auto attend = [&](const KvBlockShape& of_blocks, std::span<const AttentionItem> items) {
    if (items.empty()) return;
    attention(stream_, {.shape = of_blocks, .sm_scale = sm_scale_, .items = items, .order = order});
  };
  attend(shape, items_);
  attend(shape, sliding_.edges());
  attend(shape, in_cache_sinks_.turn_back(stream_));
  attend(open_block_shape(shape), open_.open());
}

}  // namespace longhaul
