#include "worker/attention/merging.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/kv_append.h"

namespace longhaul {

TensorView<const float, 2> MergeWeights::of(StreamRef stream, const TensorView<const float, 3>& q,
                                            std::int64_t n_kv_heads, const TokenMerging& merging) {
  if (memory_.data() == nullptr || memory_.dim(0) < q.dim(0)) {
    memory_ = {};  // frees first
    memory_ = DeviceTensor<float, 2>(stream, {q.dim(0), n_kv_heads});
  }
  const TensorView<float, 2> weights(memory_.data(), {q.dim(0), n_kv_heads});
  merge_weights(stream, {.init_val = merging.init_val, .q = q, .weights = weights});
  return weights;
}

NewSlots::NewSlots(Extent tokens, std::span<const std::uint8_t> merges,
                   std::span<const std::int64_t> n_before, std::int64_t n_kv_heads)
    : tokens_(tokens),
      n_kv_heads_(n_kv_heads),
      slots_(static_cast<std::size_t>(n_kv_heads * tokens.size())) {
  require(static_cast<std::int64_t>(merges.size()) == n_kv_heads * tokens.size() && !tokens.empty(),
          "NewSlots: a decision for each token and KV head is needed");
  for (const KvHeadId kv_head : IdRange<KvHeadId>(n_kv_heads)) {
    const auto head = static_cast<std::size_t>(kv_head.value);
    std::int64_t newest = (n_before.empty() ? 0 : n_before[head]) - 1;
    for (std::int64_t position = tokens.begin; position < tokens.end; ++position) {
      const auto row = static_cast<std::size_t>((position - tokens.begin) * n_kv_heads);
      if (merges[row + head] == 0) ++newest;
      require(newest >= 0, "NewSlots: the first token merges");
      slots_[index(kv_head, position)] = newest;
    }
  }
}

std::vector<std::int64_t> NewSlots::n_slots() const {
  std::vector<std::int64_t> n;
  for (const KvHeadId kv_head : IdRange<KvHeadId>(n_kv_heads_)) n.push_back(slots(kv_head).end);
  return n;
}

std::vector<NewSlots> merge_next(StreamRef stream, const MergeNextArgs& args) {
  const std::int64_t n_kv_heads = args.k.dim(1);
  std::vector<std::uint8_t> merges(static_cast<std::size_t>(args.k.dim(0) * n_kv_heads));
  merge_decisions(stream, {.init_val = args.merging.init_val,
                           .k = args.k,
                           .positions = args.positions,
                           .merges = merges});
  std::vector<NewSlots> slots;
  std::vector<MergeTokensItem> items;
  RawCopies copies;
  for (const NextTokens& next : args.sequences) {
    const auto of_next =
        std::span(merges).subspan(static_cast<std::size_t>(next.rows.begin * n_kv_heads),
                                  static_cast<std::size_t>(next.rows.size() * n_kv_heads));
    slots.emplace_back(next.tokens, of_next, next.state->n_slots, n_kv_heads);
    next.state->n_slots = slots.back().n_slots();
    MergeTokensItem item{.first_position = next.tokens.begin,
                         .k = args.k.slice(0, next.rows),
                         .v = args.v.slice(0, next.rows),
                         .weights = args.weights.slice(0, next.rows)};
    item.before = next.state->last.append({.k = item.k, .v = item.v, .weights = item.weights},
                                          args.merging.window - 1, copies);
    items.push_back(item);
  }
  copies.run(stream);
  merge_tokens(stream,
               {.window = args.merging.window, .init_val = args.merging.init_val, .items = items});
  return slots;
}

std::vector<Extent> slots_by_block(Extent slots, std::int64_t block_size) {
  std::vector<Extent> parts;
  for (std::int64_t begin = slots.begin; begin < slots.end; begin = parts.back().end)
    parts.push_back({begin, std::min(slots.end, (begin / block_size + 1) * block_size)});
  return parts;
}

void store_slots(StreamRef stream, const CacheLayout& layout, std::span<const SlotRows> items) {
  std::vector<std::byte*> blocks;
  blocks.reserve(items.size());  // appended items point into it
  std::vector<KvAppendItem> appended;
  for (const SlotRows& item : items) {
    HeadCache& cache = item.cache->head(item.layer, item.kv_head);
    cache.take_back({std::min(item.slots.begin, cache.next_position().value)});
    const auto place = cache.store(item.slots);
    if (!place) {
      throw Error(ErrorCode::kOutOfMemory,
                  fmt::format("no cache block is free for slots from {} on of layer {}, KV head {}",
                              item.slots.begin, item.layer.value, item.kv_head.value));
    }
    // Slots that this rank holds are never more than tokens.
    cache.advance_to({std::max(cache.next_position().value, item.slots.end)});
    blocks.push_back(place->block);
    appended.push_back({.k = item.k,
                        .v = item.v,
                        .blocks = std::span(blocks).last(1),
                        .first_slot = place->first_slot.value,
                        .rows = item.rows});
  }
  kv_append(stream, {.shape = layout.shape(), .items = appended});
}

void SlotQueries::add(AttentionWork& work, const QueryRows& queries, KvHeadId kv_head, Extent rows,
                      std::span<const KvBlockRef> blocks, Own own,
                      const std::function<std::int64_t(std::int64_t)>& slot_of) {
  const std::int64_t n_own = own == Own::kInBlocks ? 0 : 1;
  auto& positions = positions_.emplace_back();
  positions.reserve(static_cast<std::size_t>(rows.size()));
  // Slots ascend: queries that see none come first.
  std::int64_t n_blind = 0;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    positions.push_back(slot_of(row) - n_own);
    if (positions.back() < 0) ++n_blind;
  }
  const QueryRows by_slot{.kv_heads = queries.kv_heads,
                          .positions = positions,
                          .q = queries.q.slice(0, rows),
                          .state = queries.state.tokens(rows)};
  work.add(by_slot, kv_head, {n_blind, rows.size()}, {.closed = blocks});
}

}  // namespace longhaul
