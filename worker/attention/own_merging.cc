#include "worker/attention/own_merging.h"

#include <algorithm>
#include <cmath>

#include "kernels/own_keys.h"
#include "kernels/softmax_state.h"

namespace longhaul {
namespace {

// [rows, head_dim] of one head, strided.
TensorView<float, 2> rows_of_head(const TensorView<float, 3>& x, Extent rows, KvHeadId head) {
  return {x.data() + rows.begin * x.stride(0) + head.value * x.stride(1),
          {rows.size(), x.dim(2)},
          {x.stride(0), 1}};
}

}  // namespace

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
  const std::vector<float> merge_by = merge_weights(b.q, layout_.n_kv_heads(), merging_.init_val);
  for (const BatchSegment& segment : batch.segments) merge(layer, segment, merge_by);
  zero_last_elements(b.q);
  for (const TensorView<float, 3>& x : {b.q, b.k}) {
    compute_.rotate(x);
    zero_last_elements(x);
  }
}

void OwnMerging::merge(LayerId layer, const BatchSegment& segment, std::span<const float> weights) {
  const std::int64_t n_kv_heads = layout_.n_kv_heads();
  const std::int64_t n_rows = segment.rows.size();
  const std::int64_t first = segment.first_position.value;
  slots_.emplace(segment.cache,
                 merge_next({.merging = merging_,
                             .tokens = {first, first + n_rows},
                             .k = k_.slice(0, segment.rows),
                             .v = v_.slice(0, segment.rows),
                             .weights = {weights.data() + segment.rows.begin * n_kv_heads,
                                         {n_rows, n_kv_heads}}},
                            segment.cache->merge_state(layer)));
}

void OwnMerging::read_own_tokens() {
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  const StepBuffers& b = compute_.buffers();
  clear(compute_.stream(), b.state);
  const auto head_dim = static_cast<double>(compute_.spec().head_dim);
  add_own_keys({.shape = layout_.shape(),
                .sm_scale = static_cast<float>(1.0 / std::sqrt(head_dim)),
                .q = b.q,
                .k = b.k,
                .v = b.v,
                .state = b.state});
}

// Moves the rows that stay to the first ones of the segment.
void OwnMerging::gather_staying(const BatchSegment& segment, const NewSlots& slots,
                                KvHeadId kv_head) {
  const TensorView<float, 2> k = rows_of_head(k_, segment.rows, kv_head);
  const TensorView<float, 2> v = rows_of_head(v_, segment.rows, kv_head);
  std::int64_t n = 0;
  for (std::int64_t row = 0; row < segment.rows.size(); ++row) {
    if (!slots.stays(kv_head, slots.tokens().begin + row)) continue;
    if (n < row) {
      std::copy_n(k[row].data(), k.dim(1), k[n].data());
      std::copy_n(v[row].data(), v.dim(1), v[n].data());
    }
    ++n;
  }
}

void OwnMerging::append(LayerId layer, const Batch& batch) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  std::vector<SlotRows> items;
  for (const BatchSegment& segment : batch.segments) {
    const NewSlots& slots = slots_.at(segment.cache);
    for (const KvHeadId kv_head : layout_.order(layer)) {
      gather_staying(segment, slots, kv_head);
      const Extent all = slots.slots(kv_head);
      for (const Extent& part : slots_by_block(all, layout_.shape().block_size)) {
        const Extent rows{segment.rows.begin + part.begin - all.begin,
                          segment.rows.begin + part.end - all.begin};
        items.push_back({.layer = layer,
                         .kv_head = kv_head,
                         .cache = segment.cache,
                         .slots = part,
                         .k = rows_of_head(k_, rows, kv_head),
                         .v = rows_of_head(v_, rows, kv_head)});
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
