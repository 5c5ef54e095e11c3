#include "worker/ring/merging_decode.h"

#include <algorithm>

#include "base/error.h"
#include "worker/layer_slice.h"
#include "worker/ring/head_runs.h"

namespace longhaul {

MergingDecode::MergingDecode(LayerCompute& compute, const CacheLayout& layout,
                             const RingStage& stage, RingContext& context)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      context_(context),
      merging_(compute.spec().token_merging.value()) {}

void MergingDecode::append(LayerId layer, std::span<const DecodeRow> rows,
                           std::span<const QueryRows> own) {
  for (const DecodeRow& row : rows)
    require(row.n_guesses == 0, "tokens are merged: guesses cannot be taken back");
  slot_queries_.clear();
  gather(layer, own);
  merge(layer, rows);
  for (const QueryRows& run : own) {
    zero_last_elements(run.q);
    compute_.rotate(run.q);
    zero_last_elements(run.q);
  }
  store(layer, rows);
}

// The heads whose keys that rank projects.
std::vector<KvHeadId> MergingDecode::made_by(LayerId layer, RingPos position) const {
  std::vector<KvHeadId> heads;
  for (const KvHeadId head : layout_.kv_head_ids()) {
    if (stage_.layer(layer).homes[head].positions.front() == position) heads.push_back(head);
  }
  return heads;
}

// Of the heads that this rank makes, one after the other: [n_rows, k and v and the weight].
std::vector<float> MergingDecode::project(LayerId layer, std::span<const QueryRows> own) {
  const StepBuffers& b = compute_.buffers();
  const std::int64_t head_dim = compute_.spec().head_dim;
  std::vector<float> values;
  for (const Extent& kv_heads : head_runs(made_by(layer, stage_.position()))) {
    const TensorView<float, 3> k(b.k.data(), {n_rows(), kv_heads.size(), head_dim});
    const TensorView<float, 3> v(b.v.data(), {n_rows(), kv_heads.size(), head_dim});
    compute_.project_keys_values(
        heads_of(compute_.weights().layer(layer), compute_.spec(), kv_heads), k, v,
        LayerCompute::Rope::kLater);
    for (const KvHeadId head : IdRange<KvHeadId>(kv_heads)) {
      const auto run = std::ranges::find_if(
          own, [&](const QueryRows& r) { return r.kv_heads.contains(head.value); });
      require(run != own.end(), "MergingDecode: queries of a head are missing");
      const std::vector<float> weights =
          merge_weights(run->q.slice(1, run->heads_of(head)), 1, merging_.init_val);
      for (std::int64_t row = 0; row < n_rows(); ++row) {
        for (const TensorView<float, 3>& x : {k, v}) {
          const float* from = x[row][head.value - kv_heads.begin].data();
          values.insert(values.end(), from, from + head_dim);
        }
        values.push_back(weights[static_cast<std::size_t>(row)]);
      }
    }
  }
  return values;
}

// All heads' rows, on every rank.
void MergingDecode::gather(LayerId layer, std::span<const QueryRows> own) {
  const std::int64_t head_size = 2 * compute_.spec().head_dim + 1;
  std::vector<std::size_t> sizes;
  std::vector<KvHeadId> heads;  // as they come
  for (std::int64_t p = 0; p < stage_.n_ranks(); ++p) {
    const std::vector<KvHeadId> made = made_by(layer, {p});
    heads.insert(heads.end(), made.begin(), made.end());
    sizes.push_back(made.size() * static_cast<std::size_t>(n_rows() * head_size) * sizeof(float));
  }
  const std::vector<float> mine = project(layer, own);
  std::vector<float> all(heads.size() * static_cast<std::size_t>(n_rows() * head_size));
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather(std::as_bytes(std::span(mine)), sizes,
                             std::as_writable_bytes(std::span(all)));
  }
  raw_.assign(static_cast<std::size_t>(n_rows()),
              {.n_kv_heads = layout_.n_kv_heads(), .head_dim = compute_.spec().head_dim});
  const float* from = all.data();
  for (RawTokens& row : raw_) row.values.resize(static_cast<std::size_t>(row.row_size()));
  for (const KvHeadId head : heads) {
    for (RawTokens& row : raw_) {
      std::copy_n(from, head_size, row.values.begin() + head.value * head_size);
      from += head_size;
    }
  }
}

// What queries see of the new tokens, after RoPE, into the step's buffers; and all states go on.
void MergingDecode::merge(LayerId layer, std::span<const DecodeRow> rows) {
  const StepBuffers& b = compute_.buffers();
  slots_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Extent row{static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1};
    const TensorView<float, 3> k = b.k.slice(0, row);
    const TensorView<float, 3> v = b.v.slice(0, row);
    const RawRows raw = raw_[i].rows();
    for (const KvHeadId head : layout_.kv_head_ids()) {
      std::copy_n(raw.k[0][head.value].data(), k.dim(2), k[0][head.value].data());
      std::copy_n(raw.v[0][head.value].data(), v.dim(2), v[0][head.value].data());
    }
    slots_.push_back(merge_next({.merging = merging_,
                                 .tokens = rows[i].positions(),
                                 .k = k,
                                 .v = v,
                                 .weights = raw.weights},
                                rows[i].cache->merge_state(layer)));
  }
  compute_.rotate(b.k);
  zero_last_elements(b.k);
}

void MergingDecode::store(LayerId layer, std::span<const DecodeRow> rows) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  const StepBuffers& b = compute_.buffers();
  const std::int64_t head_dim = compute_.spec().head_dim;
  std::vector<SlotRows> items;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    for (const KvHeadId head : layout_.kv_head_ids()) {
      const Extent slot = slots_[i].slots(head);
      if (stage_.home_of(layer, head, {slot.begin}) != stage_.position()) continue;
      items.push_back({.layer = layer,
                       .kv_head = head,
                       .cache = rows[i].cache,
                       .slots = slot,
                       .k = {b.k[row][head.value].data(), {1, head_dim}},
                       .v = {b.v[row][head.value].data(), {1, head_dim}}});
    }
  }
  store_slots(compute_.stream(), layout_, items);
}

void MergingDecode::add(AttentionWork& work, const QueryRows& run, KvHeadId kv_head,
                        std::int64_t row, const HeadCache& cache) {
  slot_queries_.add(
      work, run, kv_head, {row, row + 1}, cache.blocks(), SlotQueries::Own::kInBlocks,
      [&](std::int64_t) { return slots_[static_cast<std::size_t>(row)].slots(kv_head).begin; });
}

}  // namespace longhaul
