#include "worker/ring/split_heads.h"

#include <algorithm>

#include "base/device/device_memory.h"
#include "worker/ring/float_bytes.h"
#include "worker/ring/head_runs.h"

namespace longhaul {
SplitHeads::SplitHeads(LayerCompute& compute, const RingStage& stage, RingContext& context)
    : compute_(compute), stage_(stage), context_(context) {
  for (const LayerId layer : stage.layer_ids()) {
    auto& split = split_.emplace_back();
    const auto& homes = stage.layer(layer).homes;
    for (const KvHeadId head : homes.ids()) {
      if (homes[head].is_split()) split.push_back(head);
    }
  }
}

// Body(run, query heads of it, their places among those of split heads) for own split heads that
// stand beside each other.
template <typename Body>
void SplitHeads::for_each_part(LayerId layer, std::span<const QueryRows> own,
                               const Body& body) const {
  const std::int64_t group = compute_.spec().gqa_group();
  std::int64_t place = 0;
  for (const Extent& heads : head_runs(split(layer))) {
    for (const QueryRows& run : own) {
      const Extent common{std::max(heads.begin, run.kv_heads.begin),
                          std::min(heads.end, run.kv_heads.end)};
      if (common.begin >= common.end) continue;
      const std::int64_t in_run = (common.begin - run.kv_heads.begin) * group;
      const std::int64_t at = (place + common.begin - heads.begin) * group;
      const std::int64_t n = common.size() * group;
      body(run, Extent{in_run, in_run + n}, Extent{at, at + n});
    }
    place += heads.size();
  }
}

void SplitHeads::share_scales(LayerId layer, std::span<const QueryRows> own) {
  if (split(layer).empty()) return;
  const std::int64_t n_rows = compute_.buffers().hidden.dim(0);
  const std::int64_t n_heads = n_split_queries(layer);
  const std::int64_t n_ranks = stage_.n_ranks();
  const std::int64_t n_mine = 2 * n_rows * n_heads;
  std::byte* mine = mine_.reserve(compute_.stream(), float_bytes(n_mine));
  std::byte* all = scales_.reserve(compute_.stream(), float_bytes(n_ranks * n_mine));
  put_scales(layer, own, reinterpret_cast<float*>(mine));
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather({mine, float_bytes(n_mine)}, {all, float_bytes(n_ranks * n_mine)});
  }
  const auto* m = reinterpret_cast<const float*>(all);
  const TensorView<const float, 3> of_m(m, {n_ranks, n_rows, n_heads}, {n_mine, n_heads, 1});
  const TensorView<const float, 3> of_l(m + n_mine / 2, {n_ranks, n_rows, n_heads},
                                        {n_mine, n_heads, 1});
  for_each_part(layer, own, [&](const QueryRows& run, Extent heads, Extent places) {
    merge_scales(compute_.stream(), {.state = run.state.heads(heads),
                                     .m = of_m.slice(2, places),
                                     .l = of_l.slice(2, places),
                                     .own = stage_.position().value});
  });
}

// m and l of own split heads to their places among all split heads; those of others are empty.
void SplitHeads::put_scales(LayerId layer, std::span<const QueryRows> own, float* mine) {
  const std::int64_t n_rows = compute_.buffers().hidden.dim(0);
  const std::int64_t n_heads = n_split_queries(layer);
  const SoftmaxStateView& empty = nothing(n_heads);
  copies_.clear();
  // The same of each row, if the stride is 0.
  const auto copy = [&](const float* from, std::int64_t stride, float* to, Extent places) {
    if (places.empty()) return;
    copies_.push_back({.to = as_bytes(to + places.begin),
                       .to_stride = float_bytes(n_heads),
                       .from = as_bytes(from),
                       .from_stride = float_bytes(stride),
                       .row_bytes = float_bytes(places.size()),
                       .n_rows = n_rows});
  };
  float* const l = mine + n_rows * n_heads;
  const auto leave_out = [&](Extent places) {
    copy(empty.m.data(), 0, mine, places);
    copy(empty.l.data(), 0, l, places);
  };
  std::int64_t end = 0;  // of the places that are filled
  for_each_part(layer, own, [&](const QueryRows& run, Extent heads, Extent places) {
    leave_out({end, places.begin});
    copy(run.state.m.data() + heads.begin, run.state.m.stride(0), mine, places);
    copy(run.state.l.data() + heads.begin, run.state.l.stride(0), l, places);
    end = places.end;
  });
  leave_out({end, n_heads});
  copy_rows(compute_.stream(), copies_);
}

// Of at least n heads, or n values.
const SoftmaxStateView& SplitHeads::nothing(std::int64_t n) {
  if (nothing_memory_.data() != nullptr && nothing_.m.dim(1) >= n) return nothing_;
  submit_noted(compute_.stream());  // it may use the old memory
  nothing_memory_ = {};             // frees first
  nothing_memory_ = DeviceTensor<float, 1>(compute_.stream(), {3 * n});
  float* const at = nothing_memory_.data();
  nothing_ = {{at, {1, n, 1}}, {at + n, {1, n}}, {at + 2 * n, {1, n}}};
  clear(compute_.stream(), nothing_);
  return nothing_;
}

// Body(place among split heads, the head's outputs, their stride), or (place, null, 0) where the
// head is not at home here.
template <typename Body>
void SplitHeads::for_each_head(LayerId layer, std::span<const QueryRows> own,
                               const Body& body) const {
  const std::int64_t width = compute_.spec().gqa_group() * compute_.spec().head_dim;
  const std::vector<KvHeadId>& heads = split(layer);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const auto run = std::ranges::find_if(
        own, [&](const QueryRows& r) { return r.kv_heads.contains(heads[i].value); });
    if (run == own.end()) {
      body(i, nullptr, 0);
      continue;
    }
    body(i, run->state.o.data() + (heads[i].value - run->kv_heads.begin) * width,
         run->state.o.stride(0));
  }
}

void SplitHeads::put_outputs(LayerId layer, std::span<const QueryRows> own) {
  const std::int64_t width = compute_.spec().gqa_group() * compute_.spec().head_dim;
  const float* const zeros = nothing(width).o.data();
  copies_.clear();
  for_each_head(layer, own, [&](std::size_t place, const float* o, std::int64_t stride) {
    copies_.push_back(
        {.to = joined_.data() + float_bytes(static_cast<std::int64_t>(place) * width),
         .to_stride = float_bytes(static_cast<std::int64_t>(split(layer).size()) * width),
         .from = as_bytes(o == nullptr ? zeros : o),
         .from_stride = float_bytes(stride),
         .row_bytes = float_bytes(width),
         .n_rows = compute_.buffers().hidden.dim(0)});
  });
  copy_rows(compute_.stream(), copies_);
}

void SplitHeads::take_outputs(LayerId layer, std::span<const QueryRows> own) {
  const std::int64_t width = compute_.spec().gqa_group() * compute_.spec().head_dim;
  const std::int64_t n_row = static_cast<std::int64_t>(split(layer).size()) * width;
  const std::byte* const zeros = as_bytes(nothing(width).o.data());
  copies_.clear();
  for_each_head(layer, own, [&](std::size_t place, float* o, std::int64_t stride) {
    if (o == nullptr) return;
    const RingHome& home = stage_.layer(layer).homes[split(layer)[place]];
    const bool is_first = home.positions.front() == stage_.position();
    const std::byte* sum = joined_.data() + float_bytes(static_cast<std::int64_t>(place) * width);
    copies_.push_back({.to = as_bytes(o),
                       .to_stride = float_bytes(stride),
                       .from = is_first ? sum : zeros,
                       .from_stride = is_first ? float_bytes(n_row) : 0,
                       .row_bytes = float_bytes(width),
                       .n_rows = compute_.buffers().hidden.dim(0)});
  });
  copy_rows(compute_.stream(), copies_);
}

void SplitHeads::join_outputs(LayerId layer, std::span<const QueryRows> own) {
  if (split(layer).empty()) return;
  const std::int64_t width = compute_.spec().gqa_group() * compute_.spec().head_dim;
  const std::int64_t n_sums =
      compute_.buffers().hidden.dim(0) * static_cast<std::int64_t>(split(layer).size()) * width;
  std::byte* sums = joined_.reserve(compute_.stream(), float_bytes(n_sums));
  put_outputs(layer, own);
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_reduce_sum(
        std::span(reinterpret_cast<float*>(sums), static_cast<std::size_t>(n_sums)));
  }
  take_outputs(layer, own);
}

}  // namespace longhaul
