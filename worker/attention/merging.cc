#include "worker/attention/merging.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "kernels/kv_append.h"

namespace longhaul {

void add_decisions(const TensorView<const float, 3>& k, const TokenMerging& merging,
                   std::int64_t first_position, std::vector<std::uint8_t>& to) {
  for (std::int64_t row = 0; row < k.dim(0); ++row) {
    for (std::int64_t head = 0; head < k.dim(1); ++head) {
      const float last = k[row][head][k.dim(2) - 1];
      to.push_back(merges_into_slot(last, merging.init_val, first_position + row) ? 1 : 0);
    }
  }
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

NewSlots merge_next(const MergeNextArgs& args, MergeState& state) {
  const std::int64_t n_needed = args.merging.window - 1;
  std::vector<std::uint8_t> merges;
  add_decisions(args.k, args.merging, args.tokens.begin, merges);
  NewSlots slots(args.tokens, merges, state.n_slots, args.k.dim(1));
  const std::int64_t n_before = state.last.n();
  state.last.append({.k = args.k, .v = args.v, .weights = args.weights}, n_needed);
  merge_tokens({.window = args.merging.window,
                .init_val = args.merging.init_val,
                .first_position = args.tokens.begin,
                .before = state.last.rows(n_before),
                .k = args.k,
                .v = args.v,
                .weights = args.weights});
  state.last.keep_about(n_needed);
  state.n_slots = slots.n_slots();
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
                        .first_slot = place->first_slot.value});
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
