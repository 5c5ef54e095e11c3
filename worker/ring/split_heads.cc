#include "worker/ring/split_heads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/device/device_memory.h"
#include "worker/ring/float_bytes.h"

namespace longhaul {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::size_t bytes_of(std::int64_t n_floats) {
  return static_cast<std::size_t>(n_floats) * sizeof(float);
}

std::int64_t n_states(std::span<const QueryRows> own) {
  std::int64_t n = 0;
  for (const QueryRows& run : own) n += run.state.m.size();
  return n;
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

// Body(state, place) for the own states of split heads: the number of the state, and where its m
// lies in what one rank gives.
template <typename Body>
void SplitHeads::for_each_state(LayerId layer, std::span<const QueryRows> own,
                                const Body& body) const {
  const std::vector<KvHeadId>& heads = split(layer);
  const std::int64_t group = compute_.spec().gqa_group();
  const std::int64_t n_heads = static_cast<std::int64_t>(heads.size()) * group;
  std::int64_t first = 0;
  for (const QueryRows& run : own) {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (!run.kv_heads.contains(heads[i].value)) continue;
      const Extent of_run = run.heads_of(heads[i]);
      for (std::int64_t row = 0; row < run.q.dim(0); ++row) {
        for (std::int64_t g = 0; g < group; ++g) {
          const std::int64_t state = first + row * run.q.dim(1) + of_run.begin + g;
          const std::int64_t place = (row * n_heads + static_cast<std::int64_t>(i) * group + g) * 2;
          body(static_cast<std::size_t>(state), static_cast<std::size_t>(place));
        }
      }
    }
    first += run.state.m.size();
  }
}

void SplitHeads::share_scales(LayerId layer, std::span<const QueryRows> own) {
  if (split(layer).empty()) return;
  fetch(own);
  gather(layer, own);
  if (own.empty()) return;
  set_to_others(layer, own);
  merge_others(own);
}

// Own m and l to the host.
void SplitHeads::fetch(std::span<const QueryRows> own) {
  const std::int64_t n = n_states(own);
  scales_.resize(static_cast<std::size_t>(2 * n));
  std::vector<HostCopy> copies;
  float* next = scales_.data();
  for (const QueryRows& run : own) {
    const std::int64_t n_here = run.state.m.size();
    copies.push_back({{as_bytes(next), bytes_of(n_here)}, as_bytes(run.state.m.data())});
    copies.push_back({{as_bytes(next + n), bytes_of(n_here)}, as_bytes(run.state.l.data())});
    next += n_here;
  }
  if (!copies.empty()) copy_to_host(compute_.stream(), copies);
}

// Brings m and l of all ranks' split heads together. Ranks without blocks of a head say (-inf, 0).
void SplitHeads::gather(LayerId layer, std::span<const QueryRows> own) {
  const std::size_t n_split = split(layer).size();
  const auto n_rows = static_cast<std::size_t>(compute_.buffers().hidden.dim(0));
  const auto group = static_cast<std::size_t>(compute_.spec().gqa_group());
  const std::size_t n_mine = n_rows * n_split * group * 2;
  gathered_.resize(n_mine * static_cast<std::size_t>(stage_.n_ranks()));
  const std::span<float> mine = std::span(gathered_).subspan(
      static_cast<std::size_t>(stage_.position().value) * n_mine, n_mine);
  for (std::size_t i = 0; i < n_mine; i += 2) {
    mine[i] = kMinusInfinity;
    mine[i + 1] = 0.0F;
  }
  const std::size_t n = scales_.size() / 2;
  for_each_state(layer, own, [&](std::size_t state, std::size_t place) {
    mine[place] = scales_[state];
    mine[place + 1] = scales_[n + state];
  });
  const PhaseTimer timer(compute_.times(), Phase::kRingWait);
  const RingContext::WaitMark mark(context_.board);
  context_.comm.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(gathered_)));
}

// Makes scales_ those of what all other ranks have together; heads with one home have no others.
void SplitHeads::set_to_others(LayerId layer, std::span<const QueryRows> own) {
  const std::size_t n = scales_.size() / 2;
  const std::size_t n_mine = gathered_.size() / static_cast<std::size_t>(stage_.n_ranks());
  const auto me = static_cast<std::size_t>(stage_.position().value);
  std::fill_n(scales_.begin(), n, kMinusInfinity);
  std::fill_n(scales_.begin() + static_cast<std::ptrdiff_t>(n), n, 0.0F);
  for_each_state(layer, own, [&](std::size_t state, std::size_t place) {
    const auto for_each_other = [&](const auto& body) {
      for (std::size_t at = place, r = 0; at < gathered_.size(); at += n_mine, ++r) {
        if (r != me) body(gathered_[at], gathered_[at + 1]);
      }
    };
    float max = kMinusInfinity;
    for_each_other([&](float m, float) { max = std::max(max, m); });
    if (std::isinf(max)) return;
    float sum = 0.0F;
    for_each_other([&](float m, float l) { sum += l * std::exp(m - max); });
    scales_[state] = max;
    scales_[n + state] = sum;
  });
}

// The other ranks' values are added up later, after each has divided its own by the sum over all
// keys. So here what they have together is a state whose values are zero.
void SplitHeads::merge_others(std::span<const QueryRows> own) {
  const StreamRef stream = compute_.stream();
  const std::int64_t n = n_states(own);
  auto* m = reinterpret_cast<float*>(others_.reserve(stream, bytes_of(2 * n)));
  copy_from_host(stream, as_bytes(m), std::as_bytes(std::span(scales_)));
  std::int64_t most = 0;
  for (const QueryRows& run : own) most = std::max(most, run.state.o.size());
  float* const o = zeros(most);
  for (const QueryRows& run : own) {
    const SoftmaxStateView& state = run.state;
    merge(stream, state, {{o, state.o.shape()}, {m, state.m.shape()}, {m + n, state.l.shape()}});
    m += state.m.size();
  }
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
