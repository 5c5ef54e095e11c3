#include "worker/ring/split_heads.h"

#include <algorithm>

#include "base/device/device_memory.h"
#include "worker/ring/float_bytes.h"
#include "worker/ring/head_runs.h"

namespace longhaul {
namespace {

std::size_t bytes_of(std::int64_t n_floats) {
  return static_cast<std::size_t>(n_floats) * sizeof(float);
}

}  // namespace

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
  std::byte* mine = mine_.reserve(compute_.stream(), bytes_of(n_mine));
  std::byte* all = scales_.reserve(compute_.stream(), bytes_of(n_ranks * n_mine));
  put_scales(layer, own, reinterpret_cast<float*>(mine));
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather({mine, bytes_of(n_mine)}, {all, bytes_of(n_ranks * n_mine)});
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

// m and l of own split heads to their places among all split heads.
void SplitHeads::put_scales(LayerId layer, std::span<const QueryRows> own, float* mine) {
  const std::int64_t n_rows = compute_.buffers().hidden.dim(0);
  const std::int64_t n_heads = n_split_queries(layer);
  float* l = mine + n_rows * n_heads;
  clear(compute_.stream(),
        {{mine, {n_rows, n_heads, 0}}, {mine, {n_rows, n_heads}}, {l, {n_rows, n_heads}}});
  copies_.clear();
  for_each_part(layer, own, [&](const QueryRows& run, Extent heads, Extent places) {
    const auto copy = [&](const TensorView<float, 2>& from, float* to) {
      copies_.push_back({.to = as_bytes(to + places.begin),
                         .to_stride = bytes_of(n_heads),
                         .from = as_bytes(from.data() + heads.begin),
                         .from_stride = bytes_of(from.stride(0)),
                         .row_bytes = bytes_of(heads.size()),
                         .n_rows = n_rows});
    };
    copy(run.state.m, mine);
    copy(run.state.l, l);
  });
  copy_rows(compute_.stream(), copies_);
}

// At least n zeros, which nobody writes to.
float* SplitHeads::zeros(std::int64_t n) {
  std::byte* bytes = zeros_.reserve(compute_.stream(), bytes_of(n));
  if (zeros_.capacity() > n_zeros_) {
    n_zeros_ = zeros_.capacity();
    set_to_zero(compute_.stream(), bytes, n_zeros_);
  }
  return reinterpret_cast<float*>(bytes);
}

// Copies what give(KV head, its own outputs, their stride, its place in the sums) says, for every
// split head that is at home here.
template <typename Give>
void SplitHeads::copy_outputs(LayerId layer, std::span<const QueryRows> own, const Give& give) {
  const std::int64_t width = compute_.spec().gqa_group() * compute_.spec().head_dim;
  const std::vector<KvHeadId>& heads = split(layer);
  copies_.clear();
  for (const QueryRows& run : own) {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (!run.kv_heads.contains(heads[i].value)) continue;
      float* o = run.state.o.data() + (heads[i].value - run.kv_heads.begin) * width;
      std::byte* sum = joined_.data() + bytes_of(static_cast<std::int64_t>(i) * width);
      copies_.push_back(give(heads[i], as_bytes(o), bytes_of(run.state.o.stride(0)), sum));
      copies_.back().row_bytes = bytes_of(width);
      copies_.back().n_rows = run.q.dim(0);
    }
  }
  copy_rows(compute_.stream(), copies_);
}

void SplitHeads::join_outputs(LayerId layer, std::span<const QueryRows> own) {
  if (split(layer).empty()) return;
  const std::int64_t width = compute_.spec().gqa_group() * compute_.spec().head_dim;
  const std::int64_t n_row = static_cast<std::int64_t>(split(layer).size()) * width;
  const std::int64_t n_sums = compute_.buffers().hidden.dim(0) * n_row;
  std::byte* sums = joined_.reserve(compute_.stream(), bytes_of(n_sums));
  set_to_zero(compute_.stream(), sums, bytes_of(n_sums));
  copy_outputs(layer, own, [&](KvHeadId, std::byte* o, std::size_t o_stride, std::byte* sum) {
    return CopyRowsItem{
        .to = sum, .to_stride = bytes_of(n_row), .from = o, .from_stride = o_stride};
  });
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_reduce_sum(
        std::span(reinterpret_cast<float*>(sums), static_cast<std::size_t>(n_sums)));
  }
  const std::byte* no_output = as_bytes(zeros(width));
  copy_outputs(layer, own,
               [&](KvHeadId kv_head, std::byte* o, std::size_t o_stride, std::byte* sum) {
                 const RingHome& home = stage_.layer(layer).homes[kv_head];
                 const bool is_first = home.positions.front() == stage_.position();
                 return CopyRowsItem{.to = o,
                                     .to_stride = o_stride,
                                     .from = is_first ? sum : no_output,
                                     .from_stride = is_first ? bytes_of(n_row) : 0};
               });
}

}  // namespace longhaul
