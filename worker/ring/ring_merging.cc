#include "worker/ring/ring_merging.h"

#include <algorithm>
#include <array>

#include <cstring>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "kernels/copy_rows.h"

#include "worker/ring/float_bytes.h"

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
    const PhaseTimer timer(compute_.times(), Phase::kAttend);
    compute_.add_own_keys(layout_.shape());
  }
  exchange();
  store(layer);
  attend(layer, queries);
}

// Keys, values and queries of the own rows, before RoPE.
void RingMerging::project(const PrefillLayer& layer) {
  const StepBuffers& b = compute_.buffers();
  weights_ = {};
  if (b.hidden.dim(0) == 0) return;
  const auto begin = Clock::now();
  const LayerWeights& weights = compute_.weights().layer(layer.number);
  compute_.norm_for_attention(weights);
  compute_.project_keys_values(weights, b.k, b.v, LayerCompute::Rope::kLater);
  compute_.project_queries(weights, b.q, LayerCompute::Rope::kLater);
  weights_ = merge_weights_.of(compute_.stream(), b.q, layout_.n_kv_heads(), merging_);
  context_.add_span(TraceLane::kCompute, "keys, values and queries", begin);
}

// Of a slab: its last tokens, which later ones may merge with, and each token's decisions.
std::size_t RingMerging::bytes_of_slab(Extent slab) const {
  const std::int64_t n_tail = std::min(slab.size(), merging_.window - 1);
  const std::int64_t row_size = layout_.n_kv_heads() * (2 * layout_.shape().head_dim + 1);
  return float_bytes(n_tail * row_size) +
         static_cast<std::size_t>(slab.size() * layout_.n_kv_heads());
}

std::vector<std::byte> RingMerging::tails_and_decisions(const PrefillLayer& layer) {
  const StepBuffers& b = compute_.buffers();
  const std::vector<Extent>& slabs = layer.chunk.made[stage_.position()];
  const RawLayout layout{layout_.n_kv_heads(), layout_.shape().head_dim};
  const auto n_tail = [&](const Extent& slab) {
    return std::min(slab.size(), merging_.window - 1);
  };
  std::int64_t n_tails = 0;
  for (const Extent& slab : slabs) n_tails += n_tail(slab);
  std::vector<float> tails(static_cast<std::size_t>(n_tails * layout.row_size()));
  auto* to =
      reinterpret_cast<float*>(own_tails_.reserve(compute_.stream(), tails.size() * sizeof(float)));
  RawCopies copies;
  std::int64_t first = 0;
  for (const Extent& slab : slabs) {
    const Extent rows{first + slab.size() - n_tail(slab), first + slab.size()};
    copies.add(
        layout,
        {.k = b.k.slice(0, rows), .v = b.v.slice(0, rows), .weights = weights_.slice(0, rows)}, to);
    to += n_tail(slab) * layout.row_size();
    first = rows.end;
  }
  copies.run(compute_.stream());
  copy_to_host(compute_.stream(), std::as_writable_bytes(std::span(tails)), own_tails_.data());
  std::vector<std::uint8_t> merges(static_cast<std::size_t>(first * layout.n_kv_heads));
  merge_decisions(
      compute_.stream(),
      {.init_val = merging_.init_val, .k = b.k, .positions = b.positions, .merges = merges});
  std::vector<std::byte> bytes;
  const auto add = [&](std::span<const std::byte> all, std::int64_t n, std::size_t& from) {
    const auto part = all.subspan(from, static_cast<std::size_t>(n));
    bytes.insert(bytes.end(), part.begin(), part.end());
    from += part.size();
  };
  std::size_t next_tail = 0;
  std::size_t next_decision = 0;
  for (const Extent& slab : slabs) {
    add(std::as_bytes(std::span(tails)),
        n_tail(slab) * layout.row_size() * static_cast<std::int64_t>(sizeof(float)), next_tail);
    add(std::as_bytes(std::span(merges)), slab.size() * layout.n_kv_heads, next_decision);
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
  std::vector<float> tails;  // of all slabs in order
  std::vector<std::uint8_t> merges;
  for (const Slab& slab : chunk.slabs) {
    if (slab.tokens.empty()) continue;
    const std::byte* from = all.data() + next[slab.owner];
    next[slab.owner] += bytes_of_slab(slab.tokens);
    const auto n_decisions = static_cast<std::size_t>(slab.tokens.size() * layout_.n_kv_heads());
    const std::size_t n_tail_bytes = bytes_of_slab(slab.tokens) - n_decisions;
    const std::size_t n_before = tails.size();
    tails.resize(n_before + n_tail_bytes / sizeof(float));
    if (n_tail_bytes > 0) std::memcpy(tails.data() + n_before, from, n_tail_bytes);
    const auto* decisions = reinterpret_cast<const std::uint8_t*>(from + n_tail_bytes);
    merges.insert(merges.end(), decisions, decisions + n_decisions);
  }
  MergeState& state = layer.cache.merge_state(layer.number);
  slots_.emplace(chunk.tokens, merges, state.n_slots, layout_.n_kv_heads());
  state.n_slots = slots_->n_slots();
  go_on(layer, tails);
}

// Puts the tails of all slabs behind the tokens that were there before: the last ones before each
// slab are then side by side.
void RingMerging::go_on(const PrefillLayer& layer, std::span<const float> tails) {
  const std::int64_t n_needed = merging_.window - 1;
  const RawLayout layout{layout_.n_kv_heads(), layout_.shape().head_dim};
  RawTokens& last = layer.cache.merge_state(layer.number).last;
  const RawRows old = last_rows(last.rows(), n_needed);
  const auto n_old = static_cast<std::size_t>(old.n() * layout.row_size());
  auto* first = reinterpret_cast<float*>(
      tails_.reserve(compute_.stream(), (n_old + tails.size()) * sizeof(float)));
  RawCopies copies;
  copies.add(layout, old, first);
  copies.run(compute_.stream());
  copy_from_host(compute_.stream(), reinterpret_cast<std::byte*>(first + n_old),
                 std::as_bytes(tails));
  before_.clear();
  std::int64_t n = old.n();
  for (const Slab& slab : layer.chunk.slabs) {
    if (slab.tokens.empty()) continue;
    if (slab.owner == stage_.position())
      before_.push_back(last_rows(layout.rows(first, n), n_needed));
    n += std::min(slab.tokens.size(), n_needed);
  }
  last.clear();
  last.append(layout.rows(first, n), n_needed, copies);
  copies.run(compute_.stream());
}

// The own rows become what queries see of them.
void RingMerging::merge(const PrefillLayer& layer) {
  const StepBuffers& b = compute_.buffers();
  if (b.hidden.dim(0) == 0) return;
  const PhaseTimer timer(compute_.times(), Phase::kProject);
  std::vector<MergeTokensItem> items;
  std::int64_t first = 0;
  for (const Extent& slab : layer.chunk.made[stage_.position()]) {
    const Extent rows{first, first + slab.size()};
    items.push_back({.first_position = slab.begin,
                     .before = before_[items.size()],
                     .k = b.k.slice(0, rows),
                     .v = b.v.slice(0, rows),
                     .weights = weights_.slice(0, rows)});
    first = rows.end;
  }
  merge_tokens(compute_.stream(),
               {.window = merging_.window, .init_val = merging_.init_val, .items = items});
  zero_last_elements(compute_.stream(), b.q);
  for (const TensorView<float, 3>& x : {b.q, b.k}) {
    compute_.rotate(x);
    zero_last_elements(compute_.stream(), x);
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
  const auto row_bytes = float_bytes(2 * layout_.shape().head_dim);
  const RingPos me = stage_.position();
  OfRing<std::int64_t> n_out(layer.chunk.made.size(), 0);
  OfRing<std::int64_t> n_home(n_out.size(), 0);
  for_each_staying(layer, [&](KvHeadId, RingPos maker, std::int64_t, std::int64_t, RingPos home) {
    if (maker == me) ++n_out[home];
    if (home == me) ++n_home[maker];
  });
  home_rows_.resize(n_out.size());
  std::int64_t n = 0;
  for (const RingPos p : n_home.ids()) {
    home_rows_[p] = {n, n + n_home[p]};
    n += n_home[p];
  }
  home_.reserve(compute_.stream(), static_cast<std::size_t>(n) * row_bytes);
  out_.resize(n_out.size());
  out_bytes_.resize(n_out.size());
  OfRing<std::byte*> to(n_out.size(), nullptr);
  for (const RingPos p : n_out.ids()) {
    out_bytes_[p] = p == me ? 0 : static_cast<std::size_t>(n_out[p]) * row_bytes;
    to[p] = p == me ? home_.data() + static_cast<std::size_t>(home_rows_[me].begin) * row_bytes
                    : out_[p].reserve(compute_.stream(), out_bytes_[p]);
  }
  const auto row_of = [&](std::int64_t position) {
    std::int64_t first = 0;
    for (const Extent& slab : layer.chunk.made[me]) {
      if (slab.contains(position)) return first + position - slab.begin;
      first += slab.size();
    }
    throw Error(ErrorCode::kInternal, "RingMerging: a token of another rank");
  };
  std::vector<CopyRowsItem> copies;
  for_each_staying(layer, [&](KvHeadId kv_head, RingPos maker, std::int64_t position, std::int64_t,
                              RingPos home) {
    if (maker != me) return;
    const std::int64_t row = row_of(position);
    for (const TensorView<float, 3>& x : {b.k, b.v}) {
      copies.push_back({.to = to[home],
                        .from = as_bytes(x[row][kv_head.value].data()),
                        .row_bytes = row_bytes / 2});
      to[home] += row_bytes / 2;
    }
  });
  copy_rows(compute_.stream(), copies);
}

void RingMerging::exchange() {
  const Tag tag{Traffic::kKeys};
  const RingPos me = stage_.position();
  const auto row_bytes = float_bytes(2 * layout_.shape().head_dim);
  std::vector<Incoming> in;
  std::vector<Outgoing> out;
  for (const RingPos p : home_rows_.ids()) {
    const Extent rows = p == me ? Extent{} : home_rows_[p];
    in.push_back({static_cast<int>(p.value),
                  {home_.data() + static_cast<std::size_t>(rows.begin) * row_bytes,
                   static_cast<std::size_t>(rows.size()) * row_bytes}});
    out.push_back({static_cast<int>(p.value), {out_[p].data(), out_bytes_[p]}});
  }
  Exchange moving = context_.comm.start_exchange(tag, in, out);
  for (const RingPos p : out_.ids()) {
    const auto i = static_cast<std::size_t>(p.value);
    context_.wait(moving.receives[i], p);
    context_.wait(moving.sends[i], p);
  }
}

void RingMerging::store(const PrefillLayer& layer) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  const RingPos me = stage_.position();
  const std::int64_t head_dim = layout_.shape().head_dim;
  const std::int64_t block_size = layout_.shape().block_size;
  const auto* first = reinterpret_cast<const float*>(home_.data());
  const std::array<std::int64_t, 2> shape = {home_rows_.back().end, head_dim};
  const TensorView<const float, 2> k(first, shape, {2 * head_dim, 1});
  const TensorView<const float, 2> v(first == nullptr ? nullptr : first + head_dim, shape,
                                     {2 * head_dim, 1});
  OfRing<std::int64_t> next(home_rows_.size());
  for (const RingPos p : next.ids()) next[p] = home_rows_[p].begin;
  std::vector<std::int32_t> rows;
  std::vector<SlotRows> items;
  for_each_staying(
      layer, [&](KvHeadId kv_head, RingPos maker, std::int64_t, std::int64_t slot, RingPos home) {
        if (home != me) return;
        rows.push_back(static_cast<std::int32_t>(next[maker]++));
        const bool goes_on = !items.empty() && items.back().kv_head == kv_head &&
                             items.back().slots.end == slot && slot % block_size != 0;
        if (!goes_on) {
          items.push_back({.layer = layer.number,
                           .kv_head = kv_head,
                           .cache = &layer.cache,
                           .slots = {slot, slot},
                           .k = k,
                           .v = v});
        }
        ++items.back().slots.end;
      });
  std::span<const std::int32_t> left = rows;
  for (SlotRows& item : items) {
    const auto n = static_cast<std::size_t>(item.slots.size());
    item.rows = left.first(n);
    left = left.subspan(n);
  }
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
  std::size_t n_bytes = home_.capacity();
  for (const ByteBuffer& part : out_) n_bytes += part.capacity();
  return n_bytes + query_ring_.buffer_bytes();
}

}  // namespace longhaul
