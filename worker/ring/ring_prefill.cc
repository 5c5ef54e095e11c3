#include "worker/ring/ring_prefill.h"

#include <algorithm>

#include "kernels/cpu/meanwhile.h"
#include "worker/attention/accumulate.h"
#include "worker/attention/compaction.h"

namespace longhaul {

RingPrefill::RingPrefill(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                         const RingPlace& place, RingContext& context)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      context_(context),
      blocks_(compute, layout, stage),
      queries_(compute, layout, stage, context),
      keys_(context, layout.shape().bytes()),
      compensation_(compute, layout, stage, context),
      history_(compute, layout, stage, place, context, compensation_),
      windows_(context, stage, layout.shape()) {
  if (layout.heads().merges_tokens()) merging_.emplace(compute, layout, stage, context);
  if (layout.has_open_blocks()) open_.emplace(compute, layout, stage, context);
}

void RingPrefill::run(const RingChunk& chunk, SequenceCache& cache) {
  const Meanwhile transfers_advance([this] { keys_.progress(); });
  blocks_.start(chunk);
  if (open_) open_->start(chunk);
  for (const LayerId number : stage_.layer_ids()) {
    const bool is_last = number.value + 1 == compute_.spec().n_layers;
    run_layer({.number = number,
               .chunk = chunk,
               .cache = cache,
               .homes = stage_.layer(number),
               .queries = chunk.queries(is_last)});
  }
}

void RingPrefill::run_layer(const PrefillLayer& layer) {
  context_.set_layer(layer.number);
  if (merging_) {
    merging_->run(layer, queries_);
    return finish(layer);
  }
  const LayerWeights& weights = compute_.weights().layer(layer.number);
  const StepBuffers& b = compute_.buffers();
  if (open_) open_->fetch(layer);
  const auto begin = Clock::now();
  if (b.hidden.dim(0) > 0) {
    compute_.norm_for_attention(weights);
    compute_.project_keys_values(weights, b.k, b.v);
  }
  if (open_) open_->fill(layer);
  blocks_.pack(layer, open_ ? &*open_ : nullptr);
  context_.add_span(TraceLane::kCompute, "keys and values", begin);
  const bool compensates = compensation_.is_for(layer.number);
  // Sums need the keys that leave during all queries, asked or not.
  const WindowChunk window{.slabs = layer.chunk.stored_slabs,
                           .queries = compensates ? layer.chunk.made : layer.queries,
                           .window = layer.homes.window,
                           .block_size = stage_.block_size()};
  if (!layer.homes.windowed.empty()) {
    windows_.start(layer.number, window, layer.cache,
                   {.pieces = blocks_.pieces(), .bytes = blocks_.windowed()});
  }
  if (!layer.homes.retrieval.empty()) keys_.start(blocks_.trains(), blocks_.retrieval());

  queries_.project(layer);
  if (!layer.homes.retrieval.empty()) {
    attend_chunk(layer);
    if (compensates && stage_.plan().reproducible) sum_at_homes(layer);
    history_.attend(layer, queries_, keys_, blocks_.trains());
  }
  observe(layer);
  // Last, since it may turn queries back (worker/attention/in_cache_sinks.h).
  if (!layer.homes.windowed.empty()) attend_windows(layer, window);
  if (open_) attend_open();
  finish(layer);
}

// Every rank gets the chunk's queries that methods ask for, wherever they were made: a few last
// rows, or all of them.
void RingPrefill::observe(const PrefillLayer& layer) {
  const std::int64_t n_last = n_observed_queries(layout_, layer.number);
  const bool all = observes_all(layout_, layer.number);
  if (n_last == 0 && !all) return;
  const GatherBytes gather = context_.gather();
  const std::int64_t first = all ? layer.chunk.tokens.begin : layer.chunk.tokens.end - n_last;
  const StepBuffers& b = compute_.buffers();
  const auto n_rows = static_cast<std::int64_t>(queries_.empty() ? 0 : b.q.dim(0));
  Extent rows{0, n_rows};  // in the order of positions, so the last ones
  while (!rows.empty() && b.positions[static_cast<std::size_t>(rows.begin)] < first) ++rows.begin;
  const ObservedQueries::Rows own = rows_on_host(compute_.stream(), b.q, b.positions, rows);
  const ObservedQueries::Rows asked = gather_rows(own, gather);
  if (n_last > 0) layer.cache.observed().add(layer.number, asked, n_last);
  if (!all) return;
  accumulate({.stream = compute_.stream(),
              .weights = compute_.weights(),
              .layout = layout_,
              .layer = layer.number,
              .rows = asked,
              .gather = gather},
             layer.cache);
}

void RingPrefill::attend_chunk(const PrefillLayer& layer) {
  keys_.run([&](const Train& train, const std::byte* bytes) {
    blocks_.keep(layer, train, bytes);
    // Reproducible: all heads' queries go to their homes instead, with the history's.
    if (!stage_.plan().reproducible) queries_.attend(train, bytes);
  });
}

void RingPrefill::attend_windows(const PrefillLayer& layer, const WindowChunk& window) {
  windows_.finish();
  const LayerHomes& homes = layer.homes;
  if (compensation_.is_for(layer.number)) compensate_windows(layer);
  if (!queries_.empty()) {
    queries_.begin();
    for (std::size_t i = 0; i < homes.windowed.size(); ++i)
      queries_.add(homes.windowed[i], {.closed = windows_.blocks(i)});
    queries_.run();
  }
  blocks_.keep(layer, window, [&](std::size_t i) { return windows_.blocks(i); });
}

// Before attention, which may turn queries back. Each rank's queries of a slab are asked from the
// sums that it begins with.
void RingPrefill::compensate_windows(const PrefillLayer& layer) {
  const std::vector<KvHeadId>& windowed = layer.homes.windowed;
  compensation_.sum_up(layer, [&](KvHeadId kv_head) {
    const auto at = std::ranges::lower_bound(windowed, kv_head);
    return windows_.blocks(static_cast<std::size_t>(at - windowed.begin()));
  });
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  compensation_.begin();
  for (const KvHeadId kv_head : windowed) {
    for (const Extent& rows : queries_.rows()) compensation_.add(queries_.all(), kv_head, rows);
  }
  compensation_.run();
}

// Where results are reproducible, when the chunk's blocks are all at home.
void RingPrefill::sum_at_homes(const PrefillLayer& layer) {
  compensation_.sum_up(
      layer, [&](KvHeadId kv_head) { return layer.cache.head(layer.number, kv_head).blocks(); });
}

// Last, as one rank does it.
void RingPrefill::attend_open() {
  open_->wait();
  if (queries_.empty()) return;
  queries_.begin();
  for (const KvHeadId kv_head : layout_.kv_head_ids())
    queries_.add(kv_head, {.open = open_->blocks(kv_head)});
  queries_.run();
}

void RingPrefill::finish(const PrefillLayer& layer) {
  layer.cache.advance_to(layer.number, {layer.chunk.tokens.end});
  layer.cache.trim(layer.number, {layer.chunk.tokens.end});
  if (queries_.empty()) return;
  const auto begin = Clock::now();
  const LayerWeights& weights = compute_.weights().layer(layer.number);
  compute_.project_states(weights, compute_.buffers().state, compute_.residual());
  compute_.feed_forward(weights, compute_.residual());
  context_.add_span(TraceLane::kCompute, "finish and feed forward", begin);
}

std::size_t RingPrefill::buffer_bytes() const {
  return blocks_.buffer_bytes() + history_.buffer_bytes() + keys_.buffer_bytes() +
         windows_.buffer_bytes() + compensation_.buffer_bytes() +
         (merging_ ? merging_->buffer_bytes() : 0) + (open_ ? open_->buffer_bytes() : 0);
}

}  // namespace longhaul
