#include "worker/ring/ring_history.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/copy_rows.h"

namespace longhaul {

RingHistory::RingHistory(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                         const RingPlace& place, RingContext& context,
                         RingCompensation& compensation)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      choice_(place.history),
      compensation_(compensation),
      queries_(context) {
  if (place.cluster != nullptr) {
    cost_.emplace(stage.plan(), stage.stage(), compute.spec(), *place.cluster);
  }
}

// Whether tokens may be gone in the middle of what homes hold, so that no other rank knows which
// blocks these have.
bool RingHistory::may_have_gaps(LayerId layer) const {
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    if (std::holds_alternative<KeepBudget>(layout_.policy(layer, kv_head).keep)) return true;
  }
  return false;
}

HistoryMode RingHistory::mode(const PrefillLayer& layer) const {
  if (may_have_gaps(layer.number)) return HistoryMode::kQueriesTravel;
  if (choice_ == HistoryChoice::kKeysTravel) return HistoryMode::kKeysTravel;
  if (choice_ == HistoryChoice::kQueriesTravel) return HistoryMode::kQueriesTravel;
  // One query is always smaller than the history.
  if (&layer.queries != &layer.chunk.made || !cost_) return HistoryMode::kQueriesTravel;
  return cost_->history(layer.number, layer.chunk.tokens).cheaper();
}

void RingHistory::attend(const PrefillLayer& layer, OwnQueries& own, KeyRing& keys,
                         const OfRing<Train>& trains) {
  if (stage_.plan().reproducible) return by_queries(layer, own);
  if (layer.chunk.stored_tokens().begin == 0) return;
  if (mode(layer) == HistoryMode::kQueriesTravel) {
    by_queries(layer, own);
    return;
  }
  std::size_t longest = 1;
  for (const Train& train : trains) longest = std::max(longest, train.size());
  by_keys(layer, own, keys, longest);
}

void RingHistory::by_keys(const PrefillLayer& layer, OwnQueries& own, KeyRing& keys,
                          std::size_t longest) {
  const Extent history{0, layer.chunk.stored_tokens().begin};
  const auto n_ranks = static_cast<std::size_t>(stage_.n_ranks());
  OfRing<Train> all(n_ranks);
  for (const KvHeadId kv_head : layer.homes.retrieval) {
    for (const Extent& piece : block_pieces(history, stage_.block_size())) {
      all[stage_.home_of(layer.number, kv_head, {piece.begin})].push_back({kv_head, piece});
    }
  }
  std::size_t n_rounds = 0;
  for (const Train& train : all) {
    n_rounds = std::max(n_rounds, (train.size() + longest - 1) / longest);
  }
  OfRing<Train> trains(n_ranks);
  for (std::size_t round = 0; round < n_rounds; ++round) {
    for (const RingPos p : all.ids()) {
      const auto begin = std::min(all[p].size(), round * longest);
      const auto end = std::min(all[p].size(), begin + longest);
      trains[p].assign(all[p].begin() + static_cast<std::ptrdiff_t>(begin),
                       all[p].begin() + static_cast<std::ptrdiff_t>(end));
    }
    keys.start(trains, load(layer, trains[stage_.position()]));
    keys.run([&](const Train& train, const std::byte* visiting) { own.attend(train, visiting); });
  }
}

// The bytes of a train whose blocks are at home here.
const std::byte* RingHistory::load(const PrefillLayer& layer, const Train& train) {
  const std::size_t block_bytes = layout_.shape().bytes();
  std::byte* bytes = train_.reserve(compute_.stream(), train.size() * block_bytes);
  std::vector<CopyRowsItem> copies;
  for (std::size_t i = 0; i < train.size(); ++i) {
    const auto blocks = layer.cache.head(layer.number, train[i].kv_head).blocks();
    const auto at = std::lower_bound(
        blocks.begin(), blocks.end(), train[i].tokens.begin,
        [](const KvBlockRef& b, std::int64_t position) { return b.first_position < position; });
    require(at != blocks.end() && at->first_position == train[i].tokens.begin,
            "a retrieval head's home does not hold a block of the history");
    copies.push_back({.to = bytes + i * block_bytes, .from = at->data, .row_bytes = block_bytes});
  }
  copy_rows(compute_.stream(), copies);
  return bytes;
}

void RingHistory::by_queries(const PrefillLayer& layer, OwnQueries& own) {
  queries_.run({.kv_heads = layer.homes.retrieval, .queries = layer.queries, .own = own.all()},
               [&](std::span<const QueryRows> visiting) { attend_visitors(layer, own, visiting); });
}

// Visiting queries against the history that is at home here. The chunk's own blocks may already be
// beside it; where results are reproducible they are part of it.
void RingHistory::attend_visitors(const PrefillLayer& layer, OwnQueries& own,
                                  std::span<const QueryRows> visiting) {
  const Extent chunk = layer.chunk.stored_tokens();
  const std::int64_t end = stage_.plan().reproducible ? chunk.end : chunk.begin;
  const auto blocks_of = [&](const QueryRows& queries) {
    return layer.cache.head(layer.number, {queries.kv_heads.begin}).blocks();
  };
  std::size_t most = 0;
  for (const QueryRows& queries : visiting) most += blocks_of(queries).size();
  refs_.clear();
  refs_.reserve(most);  // the list points into it
  own.begin();
  for (const QueryRows& queries : visiting) {
    const std::size_t first = refs_.size();
    for (KvBlockRef block : blocks_of(queries)) {
      if (block.first_position >= end) break;
      block.n_tokens = std::min(block.n_tokens, end - block.first_position);
      refs_.push_back(block);
    }
    own.add_visitor(queries, std::span(refs_).subspan(first));
  }
  if (stage_.plan().reproducible && compensation_.is_for(layer.number))
    compensate_visitors(visiting);
  own.run();
}

// Of heads that keep a key for what has left their windows, at their homes.
void RingHistory::compensate_visitors(std::span<const QueryRows> visiting) {
  compensation_.begin();
  for (const QueryRows& queries : visiting)
    compensation_.add(queries, {queries.kv_heads.begin}, {0, queries.q.dim(0)});
  compensation_.run();
}

}  // namespace longhaul
