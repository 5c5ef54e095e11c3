#include "worker/attention/own_merging.h"

#include "kernels/softmax_state.h"
#include "worker/head_rows.h"

namespace longhaul {

OwnMerging::OwnMerging(LayerCompute& compute, const CacheLayout& layout)
    : compute_(compute), layout_(layout), merging_(compute.spec().token_merging.value()) {}

void OwnMerging::project(LayerId layer, const Batch& batch) {
  const LayerWeights& weights = compute_.weights().layer(layer);
  const StepBuffers& b = compute_.buffers();
  compute_.project_keys_values(weights, b.k, b.v, LayerCompute::Rope::kLater);
  compute_.project_queries(weights, b.q, LayerCompute::Rope::kLater);
  const PhaseTimer timer(compute_.times(), Phase::kProject);
  k_ = b.k;
  v_ = b.v;
  slots_.clear();
  slot_queries_.clear();
  merge(layer, batch);
  zero_last_elements(compute_.stream(), b.q);
  for (const TensorView<float, 3>& x : {b.q, b.k}) {
    compute_.rotate(x);
    zero_last_elements(compute_.stream(), x);
  }
}

void OwnMerging::merge(LayerId layer, const Batch& batch) {
  const StepBuffers& b = compute_.buffers();
  std::vector<NextTokens> sequences;
  for (const BatchSegment& segment : batch.segments) {
    const std::int64_t first = segment.first_position.value;
    sequences.push_back({.rows = segment.rows,
                         .tokens = {first, first + segment.rows.size()},
                         .state = &segment.cache->merge_state(layer)});
  }
  const std::vector<NewSlots> slots =
      merge_next(compute_.stream(),
                 {.merging = merging_,
                  .k = k_,
                  .v = v_,
                  .weights = weights_.of(compute_.stream(), b.q, layout_.n_kv_heads(), merging_),
                  .positions = b.positions,
                  .sequences = sequences});
  for (std::size_t i = 0; i < slots.size(); ++i) slots_.emplace(batch.segments[i].cache, slots[i]);
}

void OwnMerging::read_own_tokens() {
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  clear(compute_.stream(), compute_.buffers().state);
  compute_.add_own_keys(layout_.shape());
}

// The rows of what stays in slots.
void OwnMerging::add_staying(const BatchSegment& segment, const NewSlots& slots, KvHeadId kv_head) {
  for (std::int64_t row = 0; row < segment.rows.size(); ++row) {
    if (slots.stays(kv_head, slots.tokens().begin + row))
      staying_.push_back(static_cast<std::int32_t>(segment.rows.begin + row));
  }
}

void OwnMerging::append(LayerId layer, const Batch& batch) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  staying_.clear();
  for (const BatchSegment& segment : batch.segments) {
    const NewSlots& slots = slots_.at(segment.cache);
    for (const KvHeadId kv_head : layout_.order(layer)) add_staying(segment, slots, kv_head);
  }
  const Extent all_rows{0, k_.dim(0)};
  std::span<const std::int32_t> staying = staying_;
  std::vector<SlotRows> items;
  for (const BatchSegment& segment : batch.segments) {
    const NewSlots& slots = slots_.at(segment.cache);
    for (const KvHeadId kv_head : layout_.order(layer)) {
      for (const Extent& part : slots_by_block(slots.slots(kv_head), layout_.shape().block_size)) {
        const auto n = static_cast<std::size_t>(part.size());
        items.push_back({.layer = layer,
                         .kv_head = kv_head,
                         .cache = segment.cache,
                         .slots = part,
                         .k = head_rows(k_, all_rows, kv_head),
                         .v = head_rows(v_, all_rows, kv_head),
                         .rows = staying.first(n)});
        staying = staying.subspan(n);
      }
    }
  }
  store_slots(compute_.stream(), layout_, items);
  for (const BatchSegment& segment : batch.segments) {
    const std::int64_t end = segment.first_position.value + segment.rows.size();
    for (const KvHeadId kv_head : layout_.kv_head_ids())
      segment.cache->head(layer, kv_head).advance_to({end});
  }
}

void OwnMerging::add(AttentionWork& work, const QueryRows& queries, KvHeadId kv_head,
                     const BatchSegment& segment, LayerId layer) {
  const NewSlots& slots = slots_.at(segment.cache);
  const std::int64_t before = segment.first_position.value - segment.rows.begin;
  slot_queries_.add(work, queries, kv_head, segment.rows,
                    segment.cache->head(layer, kv_head).blocks(), SlotQueries::Own::kApart,
                    [&](std::int64_t row) { return slots.slot(kv_head, before + row); });
}

}  // namespace longhaul
