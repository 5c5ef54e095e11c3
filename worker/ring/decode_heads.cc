#include "worker/ring/decode_heads.h"

#include <array>
#include <iterator>

#include "worker/layer_slice.h"
#include "worker/ring/head_runs.h"

namespace longhaul {
namespace {

// Some of the heads (or values of heads) in the memory of all, [n_rows, n_all(, head_dim)]: as
// columns, or as a matrix of their own.
template <int kRank>
TensorView<float, kRank> part_of(const TensorView<float, kRank>& all, Extent heads, Side side) {
  if (side == Side::kBySide) return all.slice(1, heads);
  std::array<std::int64_t, kRank> shape = all.shape();
  shape[1] = heads.size();
  return {all.data() + heads.begin * all.stride(1) * all.dim(0), shape};
}

SoftmaxStateView part_of(const SoftmaxStateView& all, Extent heads, Side side) {
  return {part_of(all.o, heads, side), part_of(all.m, heads, side), part_of(all.l, heads, side)};
}

}  // namespace

void DecodeHeads::arrange(LayerId layer, std::span<const KvHeadId> asked,
                          std::span<const KvHeadId> stored, Side side) {
  weights_.clear();
  queries_.clear();
  keys_.clear();
  slices_.clear();
  beginnings_.clear();
  const StepBuffers& b = compute_.buffers();
  const std::int64_t n_rows = b.hidden.dim(0);
  const std::int64_t n_heads = std::ssize(asked) * compute_.spec().gqa_group();
  const StepBuffers::Heads all = b.heads(n_heads, std::ssize(stored), side);
  const SoftmaxStateView state{{b.state.o.data(), {n_rows, n_heads, compute_.spec().head_dim}},
                               {b.state.m.data(), {n_rows, n_heads}},
                               {b.state.l.data(), {n_rows, n_heads}}};
  const LayerWeights& whole = compute_.weights().layer(layer);
  add_queries(whole, asked, all.q, state, side);
  add_keys(whole, stored, all, side);
  for (std::size_t i = 0; i < queries_.size(); ++i)
    slices_.push_back({.weights = &weights_[i], .q = queries_[i].q});
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    slices_.push_back(
        {.weights = &weights_[queries_.size() + i], .k = keys_[i].k, .v = keys_[i].v});
  }
  if (side == Side::kBySide) {
    beginnings_.push_back({.q = all.q, .state = state, .k = all.k, .keys = keys_});
    return;
  }
  for (const QueryRows& run : queries_) beginnings_.push_back({.q = run.q, .state = run.state});
  for (const NewKeys& run : keys_) beginnings_.push_back({.k = run.k, .keys = {&run, 1}});
}

void DecodeHeads::add_queries(const LayerWeights& whole, std::span<const KvHeadId> asked,
                              const TensorView<float, 3>& q, const SoftmaxStateView& state,
                              Side side) {
  const std::int64_t group = compute_.spec().gqa_group();
  std::int64_t n_before = 0;
  for (const Extent& kv_heads : head_runs(asked)) {
    const Extent heads{n_before, n_before + kv_heads.size() * group};
    queries_.push_back({.kv_heads = kv_heads,
                        .positions = compute_.buffers().positions,
                        .q = part_of(q, heads, side),
                        .state = part_of(state, heads, side)});
    weights_.push_back(heads_of(whole, compute_.spec(), kv_heads));
    n_before = heads.end;
  }
}

void DecodeHeads::add_keys(const LayerWeights& whole, std::span<const KvHeadId> stored,
                           const StepBuffers::Heads& all, Side side) {
  std::int64_t n_before = 0;
  for (const Extent& kv_heads : head_runs(stored)) {
    const Extent heads{n_before, n_before + kv_heads.size()};
    keys_.push_back(
        {.kv_heads = kv_heads, .k = part_of(all.k, heads, side), .v = part_of(all.v, heads, side)});
    weights_.push_back(heads_of(whole, compute_.spec(), kv_heads));
    n_before = heads.end;
  }
}

}  // namespace longhaul
