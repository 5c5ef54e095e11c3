#include "worker/ring/open_chunk.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "kernels/kv_close.h"
#include "worker/head_rows.h"

namespace longhaul {

OpenChunk::OpenChunk(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                     RingContext& context)
    : compute_(compute),
      layout_(layout),
      stage_(stage),
      context_(context),
      shape_(open_block_shape(layout.shape())) {}

void OpenChunk::start(const RingChunk& chunk) {
  pieces_.clear();
  for (const Extent& slab : chunk.made[stage_.position()]) {
    for (const Extent& piece : block_pieces(slab, stage_.block_size())) pieces_.push_back(piece);
  }
}

std::span<const KvBlockRef> OpenChunk::blocks(KvHeadId kv_head) const {
  return std::span(blocks_).subspan(static_cast<std::size_t>(kv_head.value) * pieces_.size(),
                                    pieces_.size());
}

// One block from rank to rank, of which this one may be either, both or neither.
void OpenChunk::move(RingPos from, const std::byte* block, RingPos to, std::byte* place) {
  const RingPos me = stage_.position();
  const std::size_t n_bytes = shape_.bytes();
  if (from == me && to == me) {
    copies_.push_back({.to = place, .from = block, .row_bytes = n_bytes});
  } else if (from == me) {
    outgoing_.push_back({static_cast<int>(to.value), {block, n_bytes}});
  } else if (to == me) {
    incoming_.push_back({static_cast<int>(from.value), {place, n_bytes}});
  }
}

// Starts what was to be moved. Collective over the ring.
void OpenChunk::start_moves() {
  copy_rows(compute_.stream(), copies_);
  copies_.clear();
  Exchange moving = context_.comm.start_exchange({Traffic::kOpen}, incoming_, outgoing_);
  for (std::size_t i = 0; i < incoming_.size(); ++i)
    under_way_.emplace_back(RingPos{incoming_[i].from}, std::move(moving.receives[i]));
  for (std::size_t i = 0; i < outgoing_.size(); ++i)
    under_way_.emplace_back(RingPos{outgoing_[i].to}, std::move(moving.sends[i]));
  incoming_.clear();
  outgoing_.clear();
}

void OpenChunk::wait() {
  for (auto& [peer, transfer] : under_way_) context_.wait(transfer, peer);
  under_way_.clear();
}

void OpenChunk::fetch(const PrefillLayer& layer) {
  const std::size_t n_blocks = static_cast<std::size_t>(layout_.n_kv_heads()) * pieces_.size();
  std::byte* memory = memory_.reserve(compute_.stream(), n_blocks * shape_.bytes());
  places_.clear();
  blocks_.clear();
  for (std::size_t i = 0; i < n_blocks; ++i) {
    const Extent& piece = pieces_[i % pieces_.size()];
    const std::int64_t first = piece.begin / shape_.block_size * shape_.block_size;
    places_.push_back(memory + i * shape_.bytes());
    blocks_.push_back(
        {.data = places_.back(), .first_position = first, .n_tokens = piece.end - first});
  }
  // Guesses that came true since: their open blocks need not be kept any more.
  layer.cache.trim(layer.number, {layer.chunk.tokens.begin});
  const std::optional<OpenBlock>& begun = layer.chunk.begun;
  if (!begun) return;
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    const RingPos home = stage_.home_of(layer.number, kv_head, {begun->tokens.begin});
    const std::byte* block = nullptr;
    if (home == stage_.position()) {
      const auto open = layer.cache.open(layer.number, kv_head)->blocks();
      require(!open.empty() && open.back().first_position == begun->tokens.begin &&
                  open.back().n_tokens == begun->tokens.size(),
              "OpenChunk: the home does not hold the newest open block");
      block = open.back().data;
    }
    const bool is_maker = begun->maker == stage_.position();
    move(home, block, begun->maker,
         is_maker ? places_[static_cast<std::size_t>(kv_head.value) * pieces_.size()] : nullptr);
  }
  start_moves();
}

void OpenChunk::fill(const PrefillLayer& layer) {
  wait();
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  append(compute_.buffers());
  send_home(layer);
}

void OpenChunk::append(const StepBuffers& rows) {
  std::vector<KvAppendItem> items;
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    std::int64_t first = 0;
    for (const Extent& piece : pieces_) {
      const Extent of_piece{first, first + piece.size()};
      items.push_back({.k = head_rows(rows.k, of_piece, kv_head),
                       .v = head_rows(rows.v, of_piece, kv_head),
                       .blocks = std::span(places_).subspan(items.size(), 1),
                       .first_slot = piece.begin % shape_.block_size});
      first = of_piece.end;
    }
  }
  kv_append(compute_.stream(), {.shape = shape_, .items = items});
}

void OpenChunk::send_home(const PrefillLayer& layer) {
  const std::optional<OpenBlock>& unfinished = layer.chunk.unfinished;
  if (!unfinished) return;
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    const RingPos home = stage_.home_of(layer.number, kv_head, {unfinished->tokens.begin});
    const bool is_home = home == stage_.position();
    const bool is_maker = unfinished->maker == stage_.position();
    move(unfinished->maker, is_maker ? blocks(kv_head).back().data : nullptr, home,
         is_home ? room_for(layer, kv_head, unfinished->tokens) : nullptr);
  }
  start_moves();
}

// Of a home, where the whole block goes: it may have the block's first tokens already.
std::byte* OpenChunk::room_for(const PrefillLayer& layer, KvHeadId kv_head, Extent tokens) const {
  const auto place = layer.cache.open(layer.number, kv_head)->store(tokens);
  if (!place) {
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("no open block is free for tokens from {} on of layer {}, KV head {}",
                            tokens.begin, layer.number.value, kv_head.value));
  }
  return place->block;
}

}  // namespace longhaul
