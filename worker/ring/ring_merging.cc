#include "worker/ring/ring_merging.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "kernels/own_keys.h"

namespace longhaul {

RingMerging::RingMerging(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                         RingContext& context)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      context_(context),
      merging_(compute.spec().token_merging.value()),
      query_ring_(context),
      work_(compute.spec(), layout, compute.stream()) {}

void RingMerging::run(const PrefillLayer& layer, OwnQueries& queries) {
  project(layer);
  share(layer);
  merge(layer);
  pack(layer);
  queries.take(layer);
  if (!queries.empty()) {
    const StepBuffers& b = compute_.buffers();
    const PhaseTimer timer(compute_.times(), Phase::kAttend);
    const auto head_dim = static_cast<double>(compute_.spec().head_dim);
    add_own_keys({.shape = layout_.shape(),
                  .sm_scale = static_cast<float>(1.0 / std::sqrt(head_dim)),
                  .q = b.q,
                  .k = b.k,
                  .v = b.v,
                  .state = b.state});
  }
  exchange();
  store(layer);
  attend(layer, queries);
}

// Keys, values and queries of the own rows, before RoPE.
void RingMerging::project(const PrefillLayer& layer) {
  const StepBuffers& b = compute_.buffers();
  weights_.clear();
  if (b.hidden.dim(0) == 0) return;
  const auto begin = Clock::now();
  const LayerWeights& weights = compute_.weights().layer(layer.number);
  compute_.norm_for_attention(weights);
  compute_.project_keys_values(weights, b.k, b.v, LayerCompute::Rope::kLater);
  compute_.project_queries(weights, b.q, LayerCompute::Rope::kLater);
  weights_ = merge_weights(b.q, layout_.n_kv_heads(), merging_.init_val);
  context_.add_span(TraceLane::kCompute, "keys, values and queries", begin);
}

// Of a slab: its last tokens, which later ones may merge with, and each token's decisions.
std::size_t RingMerging::bytes_of_slab(Extent slab) const {
  const std::int64_t n_tail = std::min(slab.size(), merging_.window - 1);
  const std::int64_t row_size = layout_.n_kv_heads() * (2 * layout_.shape().head_dim + 1);
  return static_cast<std::size_t>(n_tail * row_size) * sizeof(float) +
         static_cast<std::size_t>(slab.size() * layout_.n_kv_heads());
}

std::vector<std::byte> RingMerging::tails_and_decisions(const PrefillLayer& layer) const {
  const StepBuffers& b = compute_.buffers();
  const std::int64_t n_kv_heads = layout_.n_kv_heads();
  std::vector<std::byte> bytes;
  std::int64_t first = 0;
  for (const Extent& slab : layer.chunk.made[stage_.position()]) {
    const Extent rows{first, first + slab.size()};
    const TensorView<const float, 3> k = b.k.slice(0, rows);
    RawTokens tail;
    tail.append({.k = k,
                 .v = b.v.slice(0, rows),
                 .weights = {weights_.data() + rows.begin * n_kv_heads, {rows.size(), n_kv_heads}}},
                merging_.window - 1);
    std::vector<std::uint8_t> merges;
    add_decisions(k, merging_, slab.begin, merges);
    const auto add = [&](std::span<const std::byte> part) {
      bytes.insert(bytes.end(), part.begin(), part.end());
    };
    add(std::as_bytes(std::span(tail.values)));
    add(std::as_bytes(std::span(merges)));
    first = rows.end;
  }
  return bytes;
}

// All ranks learn all decisions, and so which slots there are; this one what is before its slabs.
void RingMerging::share(const PrefillLayer& layer) {
  const RingChunk& chunk = layer.chunk;
  std::vector<std::size_t> sizes(chunk.made.size());
  for (const Slab& slab : chunk.slabs)
    sizes[static_cast<std::size_t>(slab.owner.value)] += bytes_of_slab(slab.tokens);
  OfRing<std::size_t> next(sizes.size());  // of each rank's bytes
  std::size_t n_bytes = 0;
  for (const RingPos p : next.ids()) {
    next[p] = n_bytes;
    n_bytes += sizes[static_cast<std::size_t>(p.value)];
  }
  std::vector<std::byte> all(n_bytes);
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather(tails_and_decisions(layer), sizes, all);
  }
  MergeState& state = layer.cache.merge_state(layer.number);
  RawTokens& last = state.last;
  last.n_kv_heads = layout_.n_kv_heads();
  last.head_dim = layout_.shape().head_dim;
  std::vector<std::uint8_t> merges;
  before_.clear();
  for (const Slab& slab : chunk.slabs) {
    if (slab.tokens.empty()) continue;
    if (slab.owner == stage_.position()) before_.push_back(last);
    const std::byte* from = all.data() + next[slab.owner];
    next[slab.owner] += bytes_of_slab(slab.tokens);
    const auto n_decisions = static_cast<std::size_t>(slab.tokens.size() * layout_.n_kv_heads());
    const std::size_t n_tail_bytes = bytes_of_slab(slab.tokens) - n_decisions;
    const std::size_t n_last = last.values.size();
    last.values.resize(n_last + n_tail_bytes / sizeof(float));
    if (n_tail_bytes > 0) std::memcpy(last.values.data() + n_last, from, n_tail_bytes);
    last.keep_last(merging_.window - 1);
    const auto* decisions = reinterpret_cast<const std::uint8_t*>(from + n_tail_bytes);
    merges.insert(merges.end(), decisions, decisions + n_decisions);
  }
  slots_.emplace(chunk.tokens, merges, state.n_slots, layout_.n_kv_heads());
  state.n_slots = slots_->n_slots();
}

// The own rows become what queries see of them.
void RingMerging::merge(const PrefillLayer& layer) {
  const StepBuffers& b = compute_.buffers();
  if (b.hidden.dim(0) == 0) return;
  const PhaseTimer timer(compute_.times(), Phase::kProject);
  const std::int64_t n_kv_heads = layout_.n_kv_heads();
  std::int64_t first = 0;
  std::size_t i = 0;
  for (const Extent& slab : layer.chunk.made[stage_.position()]) {
    const Extent rows{first, first + slab.size()};
    merge_tokens({.window = merging_.window,
                  .init_val = merging_.init_val,
                  .first_position = slab.begin,
                  .before = before_[i++].rows(),
                  .k = b.k.slice(0, rows),
                  .v = b.v.slice(0, rows),
                  .weights = {weights_.data() + first * n_kv_heads, {rows.size(), n_kv_heads}}});
    first = rows.end;
  }
  zero_last_elements(b.q);
  for (const TensorView<float, 3>& x : {b.q, b.k}) {
    compute_.rotate(x);
    zero_last_elements(x);
  }
}

// Body(KV head, maker, position, slot, home) for what stays of the chunk: by head, then in the
// order of slots.
template <typename Body>
void RingMerging::for_each_staying(const PrefillLayer& layer, const Body& body) const {
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    for (const Slab& slab : layer.chunk.slabs) {
      for (std::int64_t position = slab.tokens.begin; position < slab.tokens.end; ++position) {
        if (!slots_->stays(kv_head, position)) continue;
        const std::int64_t slot = slots_->slot(kv_head, position);
        body(kv_head, slab.owner, position, slot, stage_.home_of(layer.number, kv_head, {slot}));
      }
    }
  }
}

// What stays of the own rows, by home.
void RingMerging::pack(const PrefillLayer& layer) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  const StepBuffers& b = compute_.buffers();
  const std::int64_t head_dim = layout_.shape().head_dim;
  const RingPos me = stage_.position();
  out_.resize(layer.chunk.made.size());
  in_.resize(out_.size());
  for (const RingPos p : out_.ids()) out_[p].clear();
  OfRing<std::size_t> n_in(in_.size(), 0);
  const auto row_of = [&](std::int64_t position) {
    std::int64_t first = 0;
    for (const Extent& slab : layer.chunk.made[me]) {
      if (slab.contains(position)) return first + position - slab.begin;
      first += slab.size();
    }
    throw Error(ErrorCode::kInternal, "RingMerging: a token of another rank");
  };
  for_each_staying(layer, [&](KvHeadId kv_head, RingPos maker, std::int64_t position, std::int64_t,
                              RingPos home) {
    if (maker != me) {
      if (home == me) n_in[maker] += static_cast<std::size_t>(2 * head_dim);
      return;
    }
    const std::int64_t row = row_of(position);
    for (const TensorView<float, 3>& x : {b.k, b.v}) {
      const float* values = x[row][kv_head.value].data();
      out_[home].insert(out_[home].end(), values, values + head_dim);
    }
  });
  for (const RingPos p : in_.ids()) in_[p].resize(n_in[p]);
}

void RingMerging::exchange() {
  const Tag tag{Traffic::kKeys};
  const RingPos me = stage_.position();
  OfRing<Transfer> receives;
  OfRing<Transfer> sends;
  for (const RingPos p : in_.ids()) {
    const bool receives_any = p != me && !in_[p].empty();
    receives.push_back(receives_any
                           ? context_.comm.start_receive(static_cast<int>(p.value), tag,
                                                         std::as_writable_bytes(std::span(in_[p])))
                           : Transfer{});
  }
  for (const RingPos p : out_.ids()) {
    const bool sends_any = p != me && !out_[p].empty();
    sends.push_back(sends_any ? context_.comm.start_send(static_cast<int>(p.value), tag,
                                                         std::as_bytes(std::span(out_[p])))
                              : Transfer{});
  }
  for (const RingPos p : in_.ids()) {
    context_.wait(receives[p], p);
    context_.wait(sends[p], p);
  }
}

void RingMerging::store(const PrefillLayer& layer) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  const RingPos me = stage_.position();
  const std::int64_t head_dim = layout_.shape().head_dim;
  const std::int64_t block_size = layout_.shape().block_size;
  const auto row_size = static_cast<std::size_t>(2 * head_dim);
  std::size_t n_all = out_[me].size();
  for (const std::vector<float>& from : in_) n_all += from.size();
  rows_.resize(n_all);
  OfRing<std::size_t> next(in_.size(), 0);
  std::vector<SlotRows> items;
  float* to = rows_.data();
  for_each_staying(
      layer, [&](KvHeadId kv_head, RingPos maker, std::int64_t, std::int64_t slot, RingPos home) {
        if (home != me) return;
        const std::vector<float>& from = maker == me ? out_[me] : in_[maker];
        std::copy_n(from.data() + next[maker], row_size, to);
        next[maker] += row_size;
        const bool goes_on = !items.empty() && items.back().kv_head == kv_head &&
                             items.back().slots.end == slot && slot % block_size != 0;
        if (!goes_on) {
          items.push_back({.layer = layer.number,
                           .kv_head = kv_head,
                           .cache = &layer.cache,
                           .slots = {slot, slot},
                           .k = {to, {0, head_dim}, {2 * head_dim, 1}},
                           .v = {to + head_dim, {0, head_dim}, {2 * head_dim, 1}}});
        }
        SlotRows& item = items.back();
        const std::int64_t n = ++item.slots.end - item.slots.begin;
        item.k = {item.k.data(), {n, head_dim}, {2 * head_dim, 1}};
        item.v = {item.v.data(), {n, head_dim}, {2 * head_dim, 1}};
        to += row_size;
      });
  store_slots(compute_.stream(), layout_, items);
}

// Queries go round, those of all heads: each rank has slots of some.
void RingMerging::attend(const PrefillLayer& layer, const OwnQueries& queries) {
  query_ring_.run(
      {.kv_heads = layer.homes.retrieval, .queries = layer.queries, .own = queries.all()},
      [&](std::span<const QueryRows> visiting) {
        const PhaseTimer timer(compute_.times(), Phase::kAttend);
        work_.begin(layer.number);
        slot_queries_.clear();
        for (const QueryRows& rows : visiting) {
          const KvHeadId kv_head{rows.kv_heads.begin};
          slot_queries_.add(work_, rows, kv_head, {0, rows.q.dim(0)},
                            layer.cache.head(layer.number, kv_head).blocks(),
                            SlotQueries::Own::kApart, [&](std::int64_t row) {
                              return slots_->slot(kv_head,
                                                  rows.positions[static_cast<std::size_t>(row)]);
                            });
        }
        work_.run(compute_.order());
      });
}

std::size_t RingMerging::buffer_bytes() const {
  std::size_t n_floats = rows_.capacity();
  for (const std::vector<float>& part : out_) n_floats += part.capacity();
  for (const std::vector<float>& part : in_) n_floats += part.capacity();
  return n_floats * sizeof(float) + query_ring_.buffer_bytes();
}

}  // namespace longhaul
