#include "worker/ring/merging_decode.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/copy_rows.h"
#include "worker/layer_slice.h"
#include "worker/ring/float_bytes.h"
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
    zero_last_elements(compute_.stream(), run.q);
    compute_.rotate(run.q);
    zero_last_elements(compute_.stream(), run.q);
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

// Of the heads that this rank makes, one after the other.
std::span<const std::byte> MergingDecode::project(LayerId layer, std::span<const QueryRows> own) {
  const StepBuffers& b = compute_.buffers();
  const RawLayout of_head{.n_kv_heads = 1, .head_dim = compute_.spec().head_dim};
  const std::vector<KvHeadId> made = made_by(layer, stage_.position());
  const std::size_t n_bytes = made.size() * float_bytes(n_rows() * of_head.row_size());
  auto* to = reinterpret_cast<float*>(mine_.reserve(compute_.stream(), n_bytes));
  for (const Extent& kv_heads : head_runs(made)) {
    const TensorView<float, 3> k(b.k.data(), {n_rows(), kv_heads.size(), of_head.head_dim});
    const TensorView<float, 3> v(b.v.data(), {n_rows(), kv_heads.size(), of_head.head_dim});
    compute_.project_keys_values(
        heads_of(compute_.weights().layer(layer), compute_.spec(), kv_heads), k, v,
        LayerCompute::Rope::kLater);
    for (const KvHeadId head : IdRange<KvHeadId>(kv_heads)) {
      const auto run = std::ranges::find_if(
          own, [&](const QueryRows& r) { return r.kv_heads.contains(head.value); });
      require(run != own.end(), "MergingDecode: queries of a head are missing");
      const Extent one{head.value - kv_heads.begin, head.value - kv_heads.begin + 1};
      RawCopies copies;
      copies.add(of_head,
                 {.k = k.slice(1, one),
                  .v = v.slice(1, one),
                  .weights = weights_.of(compute_.stream(), run->q.slice(1, run->heads_of(head)), 1,
                                         merging_)},
                 to);
      copies.run(compute_.stream());
      to += n_rows() * of_head.row_size();
    }
  }
  return {mine_.data(), n_bytes};
}

// All heads' rows, on every rank: in the step's buffers, and what they weigh.
void MergingDecode::gather(LayerId layer, std::span<const QueryRows> own) {
  const StepBuffers& b = compute_.buffers();
  const std::int64_t head_dim = compute_.spec().head_dim;
  const std::int64_t n_kv_heads = layout_.n_kv_heads();
  const RawLayout of_head{.n_kv_heads = 1, .head_dim = head_dim};
  const auto size_of_head = static_cast<std::size_t>(n_rows() * of_head.row_size());
  std::vector<std::size_t> sizes;
  std::vector<KvHeadId> heads;  // as they come
  for (std::int64_t p = 0; p < stage_.n_ranks(); ++p) {
    const std::vector<KvHeadId> made = made_by(layer, {p});
    heads.insert(heads.end(), made.begin(), made.end());
    sizes.push_back(made.size() * size_of_head * sizeof(float));
  }
  const std::span<const std::byte> mine = project(layer, own);
  const std::size_t n_bytes = heads.size() * size_of_head * sizeof(float);
  std::byte* all = all_.reserve(compute_.stream(), n_bytes);
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather(mine, sizes, {all, n_bytes});
  }
  auto* weights = reinterpret_cast<float*>(
      weights_of_all_.reserve(compute_.stream(), float_bytes(n_rows() * n_kv_heads)));
  std::vector<CopyRowsItem> copies;
  const auto copy = [&](const float* from, float* to, std::int64_t to_stride, std::int64_t n) {
    copies.push_back({.to = as_bytes(to),
                      .to_stride = float_bytes(to_stride),
                      .from = as_bytes(from),
                      .from_stride = float_bytes(of_head.row_size()),
                      .row_bytes = float_bytes(n),
                      .n_rows = n_rows()});
  };
  const auto* from = reinterpret_cast<const float*>(all);
  for (const KvHeadId head : heads) {
    copy(from, b.k.data() + head.value * head_dim, b.k.stride(0), head_dim);
    copy(from + head_dim, b.v.data() + head.value * head_dim, b.v.stride(0), head_dim);
    copy(from + 2 * head_dim, weights + head.value, n_kv_heads, 1);
    from += size_of_head;
  }
  copy_rows(compute_.stream(), copies);
}

// What queries see of the new tokens, after RoPE, into the step's buffers; and all states go on.
void MergingDecode::merge(LayerId layer, std::span<const DecodeRow> rows) {
  const StepBuffers& b = compute_.buffers();
  std::vector<NextTokens> sequences;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    sequences.push_back({.rows = {row, row + 1},
                         .tokens = rows[i].positions(),
                         .state = &rows[i].cache->merge_state(layer)});
  }
  slots_ = merge_next(compute_.stream(),
                      {.merging = merging_,
                       .k = b.k,
                       .v = b.v,
                       .weights = {reinterpret_cast<const float*>(weights_of_all_.data()),
                                   {n_rows(), layout_.n_kv_heads()}},
                       .positions = b.positions,
                       .sequences = sequences});
  compute_.rotate(b.k);
  zero_last_elements(compute_.stream(), b.k);
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
