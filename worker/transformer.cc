#include "worker/transformer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "worker/attention/accumulate.h"
#include "worker/attention/compaction.h"

namespace longhaul {

Transformer::Transformer(LayerCompute& compute, const CacheLayout& layout)
    : compute_(compute),
      layout_(layout),
      own_blocks_(layout),
      work_(compute.spec(), layout, compute.stream()),
      compensation_(compute.spec(), layout, compute.stream()),
      pages_(layout, compute.stream()) {
  if (layout.heads().merges_tokens()) merging_.emplace(compute, layout);
  const Extent loaded = compute.weights().layers();
  require(loaded.begin <= layout.layers().begin && layout.layers().end <= loaded.end,
          "Transformer: caches of layers without weights");
}

TensorView<const float, 2> Transformer::forward(const Batch& batch) {
  begin(batch);
  for (const LayerId number : layout_.layer_ids()) run_layer(number, batch);
  return buffers().hidden;
}

void Transformer::run_layer(LayerId number, const Batch& batch) {
  const LayerWeights& layer = compute_.weights().layer(number);
  const bool is_last = number.value + 1 == compute_.spec().n_layers;
  const bool all_ask = !is_last || !batch.wanted || batch.wanted->size() == batch.n_rows();
  make_heads(number, batch, all_ask ? LayerCompute::Heads::kAll : LayerCompute::Heads::kKeysValues);
  const Batch queries = all_ask ? batch : keep_wanted(batch);
  if (merging_) {
    merging_->read_own_tokens();
    merging_->append(number, batch);
  }
  if (queries.n_rows() > 0) {
    if (!merging_ && !all_ask) make_queries(layer);
    if (batch.is_prompt || chooses_every_token(layout_, number)) observe(number, queries);
    attend(number, queries);
    compute_.project_states(layer, buffers().state, compute_.residual());
    compute_.feed_forward(layer, compute_.residual());
  }
  const PhaseTimer timer(compute_.times(), Phase::kTrim);
  compensate_gone(number, batch, /*queries=*/nullptr);
  for (const BatchSegment& segment : batch.segments) {
    const std::int64_t n_certain = batch.is_prompt ? segment.rows.size() : 1 - segment.n_uncertain;
    segment.cache->trim(number, {segment.first_position.value + n_certain});
  }
  if (!batch.is_prompt && chooses_every_token(layout_, number)) evict(number, batch);
}

// Keys and values, into the caches, and queries of the same rows; where heads merge tokens, queries
// are made with them whoever asks.
void Transformer::make_heads(LayerId number, const Batch& batch, LayerCompute::Heads which) {
  const LayerWeights& layer = compute_.weights().layer(number);
  if (merging_) {
    compute_.norm_for_attention(layer);
    return merging_->project(number, batch);
  }
  compute_.project_heads(layer, which);
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  own_blocks_.append(compute_.stream(), number, batch, compute_.attention_begin(layer, which),
                     buffers().v);
}

// Of the rows that are left, whose keys are in the caches.
void Transformer::make_queries(const LayerWeights& layer) {
  compute_.project_heads(layer, LayerCompute::Heads::kQueries);
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  own_blocks_.begin(compute_.stream(),
                    compute_.attention_begin(layer, LayerCompute::Heads::kQueries));
}

// Before attention, which may turn queries (worker/attention/in_cache_sinks.h).
void Transformer::observe(LayerId number, const Batch& batch) {
  const std::int64_t n_last = n_observed_queries(layout_, number);
  const bool all = observes_all(layout_, number);
  for (const BatchSegment& segment : batch.segments) {
    const auto rows_of = [&](Extent rows) {
      return rows_on_host(compute_.stream(), buffers().q, buffers().positions, rows);
    };
    if (n_last > 0) {
      const Extent rows{std::max(segment.rows.begin, segment.rows.end - n_last), segment.rows.end};
      segment.cache->observed().add(number, rows_of(rows), n_last);
    }
    if (all) {
      const ObservedQueries::Rows rows = rows_of(segment.rows);
      accumulate({.stream = compute_.stream(),
                  .weights = compute_.weights(),
                  .layout = layout_,
                  .layer = number,
                  .rows = rows,
                  .gather = alone_},
                 *segment.cache);
    }
  }
}

// Tokens that methods drop at every step, after the step's queries were asked.
void Transformer::evict(LayerId number, const Batch& batch) {
  const CompactionArgs args{.stream = compute_.stream(),
                            .weights = compute_.weights(),
                            .layout = layout_,
                            .when = KeepWhen::kAfterToken,
                            .gather = alone_};
  for (const BatchSegment& segment : batch.segments) compact_layer(args, number, *segment.cache);
}

void Transformer::attend(LayerId number, const Batch& batch) {
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  const QueryRows queries{.kv_heads = {0, layout_.n_kv_heads()},
                          .positions = buffers().positions,
                          .q = buffers().q,
                          .state = buffers().state};
  compensate_gone(number, batch, &queries);
  work_.begin(number);
  pages_.begin(number);
  // Heads outside, so that the work of all sequences' retrieval heads starts first and the short
  // streaming heads fill the gaps at the end.
  for (const KvHeadId kv_head : layout_.order(number)) {
    const bool chooses = !batch.is_prompt && pages_.chooses(number, kv_head);
    for (const BatchSegment& segment : batch.segments) {
      if (merging_) {
        merging_->add(work_, queries, kv_head, segment, number);
        continue;
      }
      if (!chooses) {
        const HeadCache& cache = segment.cache->head(number, kv_head);
        const HeadCache* open = segment.cache->open(number, kv_head);
        work_.add(queries, kv_head, segment.rows,
                  {.closed = cache.blocks(),
                   .open = open == nullptr ? std::span<const KvBlockRef>() : open->blocks(),
                   .table = batch.is_prompt ? std::nullopt : cache.table()});
        continue;
      }
      for (std::int64_t row = segment.rows.begin; row < segment.rows.end; ++row)
        pages_.add(queries, kv_head, row, *segment.cache);
    }
  }
  pages_.run(/*gather=*/nullptr, work_);
  work_.run(compute_.order());
}

// What left the windows of heads that keep a key for it: added to the states of the queries, where
// there are any, and summed up before its blocks go.
void Transformer::compensate_gone(LayerId number, const Batch& batch, const QueryRows* queries) {
  compensation_.begin(number);
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    if (!layout_.leaves_rest(number, kv_head)) continue;
    for (const BatchSegment& segment : batch.segments) {
      const HeadCache& cache = segment.cache->head(number, kv_head);
      GoneSums& sums = segment.cache->gone(number, kv_head);
      if (queries == nullptr) {
        compensation_.let_go(kv_head, sums, cache.blocks(), cache.next_position());
      } else {
        compensation_.add(*queries, kv_head, segment.rows, sums, cache.blocks(),
                          cache.next_position());
      }
    }
  }
  compensation_.run();
}

// Narrows the buffers to the wanted rows and says whose they are.
Batch Transformer::keep_wanted(const Batch& batch) {
  const Extent wanted = *batch.wanted;
  buffers().keep_rows(wanted);
  wanted_segments_.clear();
  for (const BatchSegment& segment : batch.segments) {
    const Extent rows{std::max(segment.rows.begin, wanted.begin),
                      std::min(segment.rows.end, wanted.end)};
    if (rows.empty()) continue;
    wanted_segments_.push_back(
        {.cache = segment.cache,
         .rows = {rows.begin - wanted.begin, rows.end - wanted.begin},
         .first_position = {segment.first_position.value + rows.begin - segment.rows.begin}});
  }
  return {.tokens = batch.tokens.subspan(static_cast<std::size_t>(wanted.begin),
                                         static_cast<std::size_t>(wanted.size())),
          .segments = wanted_segments_,
          .is_prompt = batch.is_prompt};
}

void Transformer::begin(const Batch& batch) {
  compute_.set_rows(batch.n_rows(), batch.is_prompt ? RowsOf::kText : RowsOf::kAnswers,
                    batch.wanted || merging_ ? Side::kApart : Side::kBySide);
  for (const BatchSegment& segment : batch.segments) {
    std::iota(buffers().positions.begin() + segment.rows.begin,
              buffers().positions.begin() + segment.rows.end, segment.first_position.value);
  }
  compute_.embed(batch.tokens);
  compute_.set_angles();
}

}  // namespace longhaul
