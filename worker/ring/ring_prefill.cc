#include "worker/ring/ring_prefill.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/copy_rows.h"
#include "kernels/kv_append.h"
#include "kernels/kv_copy.h"
#include "kernels/meanwhile.h"
#include "kernels/softmax_state.h"

namespace longhaul {
namespace {

// [rows, head_dim] of one head.
TensorView<const float, 2> head_rows(const TensorView<const float, 3>& x, Extent rows,
                                     std::int64_t head) {
  return {x.data() + rows.begin * x.stride(0) + head * x.stride(1),
          {rows.size(), x.dim(2)},
          {x.stride(0), 1}};
}

}  // namespace

RingPrefill::RingPrefill(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                         const RingPlace& place, RingContext& context)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      history_(place.history),
      context_(context),
      keys_(context, layout.shape().bytes()),
      queries_(context),
      windows_(context, stage, layout.shape()) {
  if (place.cluster != nullptr) {
    cost_.emplace(stage.plan(), stage.stage(), compute.spec(), *place.cluster);
  }
}

void RingPrefill::run(const RingChunk& chunk, SequenceCache& cache) {
  const Meanwhile transfers_advance([this] { keys_.progress(); });
  own_pieces_.clear();
  for (const Extent& slab : chunk.made[static_cast<std::size_t>(stage_.position())]) {
    for (const Extent& piece : block_pieces(slab, stage_.block_size()))
      own_pieces_.push_back(piece);
  }
  const Extent layers = stage_.stage().layers;
  for (std::int64_t number = layers.begin; number < layers.end; ++number) {
    const bool is_last = number + 1 == compute_.spec().n_layers;
    run_layer({.number = number,
               .chunk = chunk,
               .cache = cache,
               .homes = stage_.layer(number),
               .queries = chunk.queries(is_last)});
  }
}

void RingPrefill::run_layer(const Layer& layer) {
  context_.set_layer(layer.number);
  const LayerWeights& weights = compute_.weights().layer(layer.number);
  const auto begin = Clock::now();
  if (compute_.buffers().hidden.dim(0) > 0) compute_.project_keys_values(weights);
  pack(layer);
  context_.add_span(TraceLane::kCompute, "keys and values", begin);
  const WindowChunk window{.slabs = layer.chunk.slabs,
                           .queries = layer.queries,
                           .window = layer.homes.window,
                           .block_size = stage_.block_size()};
  if (!layer.homes.windowed.empty()) {
    const std::size_t retrieval_bytes =
        layer.homes.retrieval.size() * own_pieces_.size() * layout_.shape().bytes();
    windows_.start(layer.number, window, layer.cache,
                   {.pieces = own_pieces_, .bytes = packed_.data() + retrieval_bytes});
  }
  if (!layer.homes.retrieval.empty()) keys_.start(trains_, packed_.data());

  project_queries(layer);
  if (!layer.homes.retrieval.empty()) {
    attend_chunk(layer);
    attend_history(layer);
  }
  if (!layer.homes.windowed.empty()) attend_windows(layer, window);

  for (std::int64_t kv_head = 0; kv_head < layout_.n_kv_heads(); ++kv_head) {
    layer.cache.head(layer.number, kv_head).advance_to(layer.chunk.tokens.end);
  }
  layer.cache.trim(layer.number);
  if (!has_queries()) return;
  const auto finish_begin = Clock::now();
  compute_.finish(weights);
  compute_.feed_forward(weights);
  context_.add_span(TraceLane::kCompute, "finish and feed forward", finish_begin);
}

// Own K and V into blocks, and what every rank puts on the ring.
void RingPrefill::pack(const Layer& layer) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  std::vector<std::int64_t> heads = layer.homes.retrieval;
  heads.insert(heads.end(), layer.homes.windowed.begin(), layer.homes.windowed.end());
  const KvBlockShape& shape = layout_.shape();
  const std::size_t n_blocks = heads.size() * own_pieces_.size();
  std::byte* packed = packed_.reserve(compute_.stream(), n_blocks * shape.bytes());
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < n_blocks; ++i) blocks.push_back(packed + i * shape.bytes());
  std::vector<KvAppendItem> items;
  const StepBuffers& b = compute_.buffers();
  for (std::size_t h = 0; h < heads.size(); ++h) {
    std::int64_t row = 0;
    for (std::size_t i = 0; i < own_pieces_.size(); ++i) {
      const Extent rows{row, row + own_pieces_[i].size()};
      items.push_back({.k = head_rows(b.k, rows, heads[h]),
                       .v = head_rows(b.v, rows, heads[h]),
                       .blocks = std::span(blocks).subspan(h * own_pieces_.size() + i, 1)});
      row = rows.end;
    }
  }
  kv_append(compute_.stream(), {.shape = shape, .items = items});

  trains_.assign(static_cast<std::size_t>(stage_.n_ranks()), {});
  for (std::size_t p = 0; p < trains_.size(); ++p) {
    for (const std::int64_t kv_head : layer.homes.retrieval) {
      for (const Extent& slab : layer.chunk.made[p]) {
        for (const Extent& piece : block_pieces(slab, stage_.block_size())) {
          trains_[p].push_back({kv_head, piece});
        }
      }
    }
  }
}

void RingPrefill::project_queries(const Layer& layer) {
  const auto me = static_cast<std::size_t>(stage_.position());
  own_queries_ = layer.queries[me];
  own_query_rows_.clear();
  std::int64_t n_rows = 0;
  for (const Extent& queries : own_queries_) {
    own_query_rows_.push_back({n_rows, n_rows + queries.size()});
    n_rows += queries.size();
  }
  StepBuffers& b = compute_.buffers();
  // Of the last layer only the chunk's last token may be wanted: the last row of its rank.
  const std::int64_t n_before = b.hidden.dim(0);
  if (n_rows < n_before) b.keep_rows({n_before - n_rows, n_before});
  if (!has_queries()) return;
  const auto begin = Clock::now();
  compute_.project_queries(compute_.weights().layer(layer.number));
  context_.add_span(TraceLane::kCompute, "queries", begin);
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  clear(compute_.stream(), b.state);
}

void RingPrefill::attend_chunk(const Layer& layer) {
  keys_.run([&](const Train& train, const std::byte* bytes) {
    keep(layer, train, bytes);
    attend_train(layer, train, bytes);
  });
}

// Attends the own queries of all KV heads to a visiting train.
void RingPrefill::attend_train(const Layer& layer, const Train& train, const std::byte* bytes) {
  if (!has_queries()) return;
  const std::size_t block_bytes = layout_.shape().bytes();
  refs_.clear();
  for (std::size_t i = 0; i < train.size(); ++i) {
    refs_.push_back({.data = bytes + i * block_bytes,
                     .first_position = train[i].tokens.begin,
                     .n_tokens = train[i].tokens.size()});
  }
  items_.clear();
  for (std::size_t begin = 0; begin < train.size();) {
    const std::int64_t kv_head = train[begin].kv_head;
    std::size_t end = begin;
    while (end < train.size() && train[end].kv_head == kv_head) ++end;
    add_items(layer, kv_head, std::span(refs_).subspan(begin, end - begin));
    begin = end;
  }
  attend_items();
}

// The own queries of one KV head's group against these blocks.
void RingPrefill::add_items(const Layer& layer, std::int64_t kv_head,
                            std::span<const KvBlockRef> blocks) {
  const StepBuffers& b = compute_.buffers();
  const std::int64_t group = compute_.spec().gqa_group();
  const Extent q_heads{kv_head * group, (kv_head + 1) * group};
  for (const Extent& rows : own_query_rows_) {
    items_.push_back({.q = b.q.slice(0, rows).slice(1, q_heads),
                      .q_positions = std::span<const std::int64_t>(b.positions)
                                         .subspan(static_cast<std::size_t>(rows.begin),
                                                  static_cast<std::size_t>(rows.size())),
                      .blocks = blocks,
                      .mask = layout_.policy(layer.number, kv_head).mask(),
                      .state = b.state.tokens(rows).heads(q_heads)});
  }
}

void RingPrefill::attend_items() {
  if (items_.empty()) return;
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  const auto begin = Clock::now();
  attention(compute_.stream(),
            {.shape = layout_.shape(), .sm_scale = compute_.sm_scale(), .items = items_});
  context_.add_span(TraceLane::kCompute, "attend", begin);
}

// As blocks pass their home, the home keeps them.
void RingPrefill::keep(const Layer& layer, const Train& train, const std::byte* bytes) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  kept_.clear();
  for (std::size_t i = 0; i < train.size(); ++i) {
    const auto& [kv_head, tokens] = train[i];
    const std::int64_t block = tokens.begin / stage_.block_size();
    if (stage_.home_of(layer.number, kv_head, block) != stage_.position()) continue;
    make_room(layer, kv_head,
              {.data = bytes + i * layout_.shape().bytes(),
               .first_position = tokens.begin,
               .n_tokens = tokens.size()});
  }
  kv_copy(compute_.stream(), {.shape = layout_.shape(), .items = kept_});
}

// Adds a block to what is copied into the caches.
void RingPrefill::make_room(const Layer& layer, std::int64_t kv_head, const KvBlockRef& block) {
  const auto place = layer.cache.head(layer.number, kv_head)
                         .store({block.first_position, block.first_position + block.n_tokens});
  if (!place) {
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("no cache block is free for tokens from {} on of layer {}, KV head {}",
                            block.first_position, layer.number, kv_head));
  }
  kept_.push_back({.from = block.data,
                   .from_slot = 0,
                   .to = place->block,
                   .to_slot = place->first_slot,
                   .n_tokens = block.n_tokens});
}

HistoryMode RingPrefill::history_mode(const Layer& layer) const {
  if (history_ == HistoryChoice::kKeysTravel) return HistoryMode::kKeysTravel;
  if (history_ == HistoryChoice::kQueriesTravel) return HistoryMode::kQueriesTravel;
  // One query is always smaller than the history.
  if (&layer.queries != &layer.chunk.made || !cost_) return HistoryMode::kQueriesTravel;
  return cost_->history(layer.number, layer.chunk.tokens).cheaper();
}

void RingPrefill::attend_history(const Layer& layer) {
  if (layer.chunk.tokens.begin == 0) return;
  if (history_mode(layer) == HistoryMode::kKeysTravel) {
    history_by_keys(layer);
  } else {
    history_by_queries(layer);
  }
}

// The tokens of earlier chunks that are at home here. The chunk's own may already be beside them.
void RingPrefill::add_own_history(const Layer& layer, std::int64_t kv_head) {
  const std::int64_t end = layer.chunk.tokens.begin;
  for (KvBlockRef block : layer.cache.head(layer.number, kv_head).blocks()) {
    if (block.first_position >= end) break;
    block.n_tokens = std::min(block.n_tokens, end - block.first_position);
    refs_.push_back(block);
  }
}

// The homes put their blocks on the ring again, in trains no longer than those of the chunk.
void RingPrefill::history_by_keys(const Layer& layer) {
  const Extent history{0, layer.chunk.tokens.begin};
  const auto n_ranks = static_cast<std::size_t>(stage_.n_ranks());
  std::vector<Train> all(n_ranks);
  for (const std::int64_t kv_head : layer.homes.retrieval) {
    for (const Extent& piece : block_pieces(history, stage_.block_size())) {
      const std::int64_t home =
          stage_.home_of(layer.number, kv_head, piece.begin / stage_.block_size());
      all[static_cast<std::size_t>(home)].push_back({kv_head, piece});
    }
  }
  std::size_t longest = 1;
  for (const Train& train : trains_) longest = std::max(longest, train.size());
  std::size_t n_rounds = 0;
  for (const Train& train : all) {
    n_rounds = std::max(n_rounds, (train.size() + longest - 1) / longest);
  }

  const std::size_t block_bytes = layout_.shape().bytes();
  std::vector<Train> trains(n_ranks);
  for (std::size_t round = 0; round < n_rounds; ++round) {
    for (std::size_t p = 0; p < n_ranks; ++p) {
      const auto begin = std::min(all[p].size(), round * longest);
      const auto end = std::min(all[p].size(), begin + longest);
      trains[p].assign(all[p].begin() + static_cast<std::ptrdiff_t>(begin),
                       all[p].begin() + static_cast<std::ptrdiff_t>(end));
    }
    const Train& own = trains[static_cast<std::size_t>(stage_.position())];
    std::byte* bytes = history_train_.reserve(compute_.stream(), own.size() * block_bytes);
    std::vector<CopyRowsItem> copies;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto blocks = layer.cache.head(layer.number, own[i].kv_head).blocks();
      const auto at = std::lower_bound(
          blocks.begin(), blocks.end(), own[i].tokens.begin,
          [](const KvBlockRef& b, std::int64_t position) { return b.first_position < position; });
      copies.push_back({.to = bytes + i * block_bytes, .from = at->data, .row_bytes = block_bytes});
    }
    copy_rows(compute_.stream(), copies);
    keys_.start(trains, bytes);
    keys_.run([&](const Train& train, const std::byte* visiting) {
      attend_train(layer, train, visiting);
    });
  }
}

void RingPrefill::history_by_queries(const Layer& layer) {
  const StepBuffers& b = compute_.buffers();
  queries_.run(
      {.kv_heads = layer.homes.retrieval,
       .queries = layer.queries,
       .q = b.q,
       .state = b.state,
       .gqa_group = compute_.spec().gqa_group()},
      [&](std::span<const VisitingQueries> visiting) { attend_visitors(layer, visiting); });
}

// Visiting queries, those of a KV head side by side, against the history that is at home here.
void RingPrefill::attend_visitors(const Layer& layer, std::span<const VisitingQueries> visiting) {
  refs_.clear();
  std::vector<Extent> blocks;  // of each visitor, in refs_
  for (std::size_t i = 0; i < visiting.size(); ++i) {
    if (i > 0 && visiting[i].kv_head == visiting[i - 1].kv_head) {
      blocks.push_back(blocks.back());
      continue;
    }
    const auto begin = static_cast<std::int64_t>(refs_.size());
    add_own_history(layer, visiting[i].kv_head);
    blocks.push_back({begin, static_cast<std::int64_t>(refs_.size())});
  }
  items_.clear();
  for (std::size_t i = 0; i < visiting.size(); ++i) {
    if (blocks[i].empty()) continue;
    items_.push_back(
        {.q = visiting[i].q,
         .q_positions = visiting[i].positions,
         .blocks = std::span(refs_).subspan(static_cast<std::size_t>(blocks[i].begin),
                                            static_cast<std::size_t>(blocks[i].size())),
         .mask = layout_.policy(layer.number, visiting[i].kv_head).mask(),
         .state = visiting[i].state});
  }
  attend_items();
}

void RingPrefill::attend_windows(const Layer& layer, const WindowChunk& window) {
  windows_.finish();
  const LayerHomes& homes = layer.homes;
  items_.clear();
  for (std::size_t i = 0; has_queries() && i < homes.windowed.size(); ++i) {
    add_items(layer, homes.windowed[i], windows_.blocks(i));
  }
  attend_items();
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  kept_.clear();
  const std::vector<Extent> kept = kept_pieces(window);
  for (std::size_t i = 0; i < homes.windowed.size(); ++i) {
    if (homes.windowed_homes[i] != stage_.position()) continue;
    const auto blocks = windows_.blocks(i);
    for (const Extent& piece : kept) {
      const auto at = std::find_if(blocks.begin(), blocks.end(), [&](const KvBlockRef& b) {
        return b.first_position == piece.begin && b.n_tokens == piece.size();
      });
      require(at != blocks.end(), "a streaming head's home did not get a block that it keeps");
      make_room(layer, homes.windowed[i], *at);
    }
  }
  kv_copy(compute_.stream(), {.shape = layout_.shape(), .items = kept_});
}

std::size_t RingPrefill::buffer_bytes() const {
  return packed_.capacity() + history_train_.capacity() + keys_.buffer_bytes() +
         queries_.buffer_bytes() + windows_.buffer_bytes();
}

}  // namespace longhaul
