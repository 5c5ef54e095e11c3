#include "worker/ring/ring_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "kernels/begin_attention.h"
#include "kernels/residual_add.h"
#include "worker/attention/accumulate.h"
#include "worker/attention/compaction.h"
#include "worker/head_rows.h"
#include "worker/layer_slice.h"
#include "worker/ring/float_bytes.h"

namespace longhaul {

RingDecode::RingDecode(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                       RingContext& context)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      context_(context),
      work_(compute.spec(), layout, compute.stream()),
      compensation_(compute.spec(), layout, compute.stream()),
      pages_(layout, compute.stream()),
      heads_(compute),
      split_heads_(compute, stage, context) {
  if (layout.heads().merges_tokens()) merging_.emplace(compute, layout, stage, context);
  if (stage.plan().reproducible) whole_sums_.emplace(compute, stage, context);
  for (const LayerId layer : stage.layer_ids()) {
    auto& own = own_heads_.emplace_back();
    for (const KvHeadId head : layout.kv_head_ids()) {
      if (stage.is_home(layer, head)) own.push_back(head);
    }
  }
}

void RingDecode::run(std::span<const DecodeRow> rows) {
  const std::int64_t d_model = compute_.spec().d_model;
  if (partial_memory_.data() == nullptr || partial_memory_.dim(0) < n_rows()) {
    submit_noted(compute_.stream());  // it may use the old memory
    partial_memory_ = DeviceTensor<float, 2>(compute_.stream(), {n_rows(), d_model});
  }
  partial_ = {partial_memory_.data(), {n_rows(), d_model}};
  for (const LayerId number : stage_.layer_ids()) run_layer(number, rows);
}

void RingDecode::run_layer(LayerId number, std::span<const DecodeRow> rows) {
  context_.set_layer(number);
  if (merging_) {
    compute_.norm_for_attention(compute_.weights().layer(number));
    heads_.arrange(number, own_heads(number), /*stored=*/{}, Side::kApart);
    for (const LayerCompute::HeadSlice& slice : heads_.slices())
      compute_.project_queries(*slice.weights, slice.q, LayerCompute::Rope::kLater);
    merging_->append(number, rows, heads_.queries());
  } else {
    heads_.arrange(number, own_heads(number), storing_heads(number, rows),
                   compute_.may_be(Side::kBySide));
    compute_.project_heads(heads_.slices());
    append(number, rows);
  }
  const bool evicts = chooses_every_token(layout_, number);
  if (evicts) observe(number, rows);
  attend(number, rows);
  split_heads_.share_scales(number, heads_.queries());
  add_attention_output(number);
  for (const DecodeRow& row : rows) {
    row.cache->advance_to(number, {row.positions().end});
    row.cache->trim(number, {row.position.value + 1});
  }
  if (evicts) evict(number, rows);
  add_feed_forward(number);
}

// Positions cut where blocks begin.
std::vector<Extent> RingDecode::parts_by_block(Extent positions) const {
  const std::int64_t block_size = layout_.shape().block_size;
  std::vector<Extent> parts;
  for (std::int64_t begin = positions.begin; begin < positions.end; begin = parts.back().end)
    parts.push_back({begin, std::min(positions.end, (begin / block_size + 1) * block_size)});
  return parts;
}

// The heads whose newest block is at home here, for any of the rows.
std::vector<KvHeadId> RingDecode::storing_heads(LayerId number,
                                                std::span<const DecodeRow> rows) const {
  std::vector<KvHeadId> heads;
  for (const KvHeadId head : own_heads(number)) {
    const bool stores = std::any_of(rows.begin(), rows.end(), [&](const DecodeRow& row) {
      const std::vector<Extent> parts = parts_by_block(row.positions());
      return std::any_of(parts.begin(), parts.end(), [&](const Extent& part) {
        return stage_.home_of(number, head, {part.begin}) == stage_.position();
      });
    });
    if (stores) heads.push_back(head);
  }
  return heads;
}

// New K and V into the caches, and what else begins attention.
void RingDecode::append(LayerId number, std::span<const DecodeRow> rows) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  // Guesses that came true since: their open blocks need not be kept any more.
  if (layout_.has_open_blocks()) {
    for (const DecodeRow& row : rows) row.cache->trim(number, row.position);
  }
  const KvBlockShape shape =
      layout_.has_open_blocks() ? open_block_shape(layout_.shape()) : layout_.shape();
  for (const DecodeHeads::Beginning& beginning : heads_.beginnings()) {
    append_items_.clear();
    append_blocks_.clear();
    // Items point into it, so it must not move while it is filled.
    append_blocks_.reserve(static_cast<std::size_t>(n_rows() * beginning.k.dim(1)));
    for (const DecodeHeads::NewKeys& keys : beginning.keys) add_items(number, rows, keys);
    BeginAttentionArgs args = compute_.attention_begin(compute_.weights().layer(number),
                                                       beginning.q, beginning.state, beginning.k);
    args.append = {.shape = shape, .items = append_items_};
    begin_attention(compute_.stream(), args);
  }
  if (!layout_.has_open_blocks()) return;
  for (const DecodeRow& row : rows) {
    for (const DecodeHeads::NewKeys& keys : heads_.keys()) {
      for (const KvHeadId head : IdRange<KvHeadId>(keys.kv_heads))
        closing_.add(number, head, *row.cache);
    }
  }
  closing_.run(compute_.stream(), layout_.shape());
}

// What is appended of some heads: of each row the tokens whose block is at home here.
void RingDecode::add_items(LayerId number, std::span<const DecodeRow> rows,
                           const DecodeHeads::NewKeys& keys) {
  std::int64_t first = 0;  // of the sequence's rows
  for (const DecodeRow& row : rows) {
    for (const Extent& part : parts_by_block(row.positions())) {
      const std::int64_t r = first + part.begin - row.position.value;
      for (const KvHeadId head : IdRange<KvHeadId>(keys.kv_heads)) {
        if (stage_.home_of(number, head, {part.begin}) != stage_.position()) continue;
        const auto place = place_for(number, head, *row.cache, part);
        if (!place) {
          throw Error(ErrorCode::kOutOfMemory,
                      fmt::format("no cache block is free for token {} of layer {}, KV head {}",
                                  part.begin, number.value, head.value));
        }
        append_blocks_.push_back(place->block);
        const KvHeadId in_run{head.value - keys.kv_heads.begin};
        const Extent tokens{r, r + part.size()};
        append_items_.push_back({.k = head_rows(keys.k, tokens, in_run),
                                 .v = head_rows(keys.v, tokens, in_run),
                                 .blocks = std::span(append_blocks_).last(1),
                                 .first_slot = place->first_slot.value});
      }
    }
    first += row.n_tokens();
  }
}

// Where a method drops tokens one by one, the next one takes the slot of such a token.
std::optional<HeadCache::StorePlace> RingDecode::place_for(LayerId number, KvHeadId head,
                                                           SequenceCache& of, Extent tokens) const {
  if (HeadCache* const open = of.open(number, head)) return open->store(tokens);
  HeadCache& cache = of.head(number, head);
  if (!cache.is_compacted() || !chooses_every_token(layout_, number, head))
    return cache.store(tokens);
  const auto place = cache.extend(1);
  if (!place) return std::nullopt;
  return HeadCache::StorePlace{cache.writable_block(*place, 0), place->first_slot};
}

// The queries of one row of the heads that are at home here; of others nobody here asks.
ObservedQueries::Rows RingDecode::observed_row(std::int64_t row) const {
  const ModelSpec& spec = compute_.spec();
  ObservedQueries::Rows rows;
  rows.q.resize(static_cast<std::size_t>(spec.n_heads * spec.head_dim));
  std::vector<HostCopy> copies;
  for (const QueryRows& run : heads_.queries()) {
    const TensorView<const float, 3> of_row = run.q.slice(0, {row, row + 1});
    const std::int64_t first = run.kv_heads.begin * spec.gqa_group() * spec.head_dim;
    copies.push_back(
        {.to = std::as_writable_bytes(std::span(rows.q).subspan(
             static_cast<std::size_t>(first), static_cast<std::size_t>(of_row.size()))),
         .from = reinterpret_cast<const std::byte*>(of_row.data())});
  }
  copy_to_host(compute_.stream(), copies);
  return rows;
}

// The step's queries, for methods that choose at every token.
void RingDecode::observe(LayerId number, std::span<const DecodeRow> rows) {
  const std::int64_t n_last = n_observed_queries(layout_, number);
  const bool all = observes_all(layout_, number);
  const GatherBytes gather = context_.gather();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    ObservedQueries::Rows asked = observed_row(static_cast<std::int64_t>(row));
    asked.positions = {rows[row].position.value};
    if (n_last > 0) rows[row].cache->observed().add(number, asked, n_last);
    if (!all) continue;
    accumulate({.stream = compute_.stream(),
                .weights = compute_.weights(),
                .layout = layout_,
                .layer = number,
                .rows = asked,
                .gather = gather},
               *rows[row].cache);
  }
}

// Tokens that methods drop at every step.
void RingDecode::evict(LayerId number, std::span<const DecodeRow> rows) {
  const GatherBytes gather = context_.gather();
  const CompactionArgs args{.stream = compute_.stream(),
                            .weights = compute_.weights(),
                            .layout = layout_,
                            .when = KeepWhen::kAfterToken,
                            .gather = gather};
  for (const DecodeRow& row : rows) compact_layer(args, number, *row.cache);
}

void RingDecode::attend(LayerId number, std::span<const DecodeRow> rows) {
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  work_.begin(number);
  compensation_.begin(number);
  pages_.begin(number);
  for (const QueryRows& run : heads_.queries()) {
    if (merging_) clear(compute_.stream(), run.state);
    for (const KvHeadId head : IdRange<KvHeadId>(run.kv_heads)) {
      std::int64_t r = 0;
      for (const DecodeRow& row : rows) {
        const Extent of_row{r, r + row.n_tokens()};
        if (layout_.leaves_rest(number, head)) {
          compensation_.add(run, head, of_row, row.cache->gone(number, head),
                            row.cache->head(number, head).blocks(), {row.positions().end});
        }
        if (merging_) {
          merging_->add(work_, run, head, r, row.cache->head(number, head));
        } else if (pages_.chooses(number, head)) {
          pages_.add(run, head, r, *row.cache);
        } else {
          work_.add(run, head, of_row, {.closed = row.cache->head(number, head).blocks()});
          if (layout_.has_open_blocks()) add_open(number, run, head, r, row);
        }
        r = of_row.end;
      }
    }
  }
  choose_pages(number);
  compensation_.run();
  work_.run(compute_.order());
}

// Queries of a sequence, of which `first` is the first row, meet their own tokens' blocks open,
// where these are at home here.
void RingDecode::add_open(LayerId number, const QueryRows& queries, KvHeadId head,
                          std::int64_t first, const DecodeRow& row) {
  for (const Extent& part : parts_by_block(row.positions())) {
    if (stage_.home_of(number, head, {part.begin}) != stage_.position()) continue;
    const std::int64_t r = first + part.begin - row.position.value;
    work_.add(queries, head, {r, r + part.size()},
              {.open = row.cache->open(number, head)->blocks()});
  }
}

// Where pages of a head lie with several ranks all ranks of the ring take part, and know so by the
// plan.
void RingDecode::choose_pages(LayerId number) {
  bool asks_others = false;
  for (const KvHeadId head : layout_.kv_head_ids()) {
    asks_others = asks_others ||
                  (pages_.chooses(number, head) && stage_.layer(number).homes[head].is_split());
  }
  const GatherBytes gather = context_.gather();
  pages_.run(asks_others ? &gather : nullptr, work_);
}

// hidden += bias + the sum of partial_ over the ring: the same bits on every rank.
void RingDecode::add_sum_over_ring(std::span<const float> bias) {
  const PhaseTimer timer(compute_.times(), Phase::kRingWait);
  const RingContext::WaitMark mark(context_.board);
  const std::int64_t n_values = partial_.size();
  context_.comm.all_reduce_sum(
      std::span(partial_.data(), static_cast<std::size_t>(n_values)),
      [&](std::span<const float> parts) {
        const std::int64_t n_parts = std::ssize(parts) / n_values;
        residual_add(compute_.stream(),
                     {.hidden = compute_.buffers().hidden,
                      .parts = {parts.data(), {n_parts, partial_.dim(0), partial_.dim(1)}},
                      .bias = bias});
      });
}

void RingDecode::add_attention_output(LayerId number) {
  const std::span<const QueryRows> own = heads_.queries();
  const LayerWeights& weights = compute_.weights().layer(number);
  const bool are_joined = is_integer(weights.o.dtype) && split_heads_.has_any(number);
  const bool are_finished = whole_sums_ || are_joined;
  for (std::size_t i = 0; are_finished && i < own.size(); ++i)
    compute_.finish_states(heads_.weights(i), own[i].state);
  if (whole_sums_) return whole_sums_->add_attention_output(number, own);
  if (are_joined) split_heads_.join_outputs(number, own);
  if (own.empty()) set_partial_to_zero();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LayerCompute::Output to{partial_,
                                  i == 0 ? LinearOutput::kOverwrite : LinearOutput::kAccumulate};
    if (are_finished) {
      compute_.project_outputs(heads_.weights(i), own[i].state.o, to);
    } else {
      compute_.project_states(heads_.weights(i), own[i].state, to);
    }
  }
  add_sum_over_ring(weights.o_bias);
}

void RingDecode::add_feed_forward(LayerId number) {
  if (whole_sums_) return whole_sums_->add_feed_forward(number);
  const LayerWeights& weights = compute_.weights().layer(number);
  const Extent columns = stage_.ffn_slice();
  if (columns.empty()) {
    set_partial_to_zero();
  } else {
    compute_.feed_forward(ffn_columns_of(weights, columns), {partial_});
  }
  add_sum_over_ring(weights.down_bias);
}

void RingDecode::set_partial_to_zero() {
  set_to_zero(compute_.stream(), as_bytes(partial_.data()), float_bytes(partial_.size()));
}

}  // namespace longhaul
