#include "worker/ring/window_exchange.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/copy_rows.h"

namespace longhaul {
namespace {

// The cached block that holds the token at `position`.
const KvBlockRef& block_with(std::span<const KvBlockRef> blocks, TokenPos position) {
  const auto at = std::partition_point(blocks.begin(), blocks.end(), [&](const KvBlockRef& b) {
    return b.first_position + b.n_tokens <= position.value;
  });
  require(at != blocks.end() && at->first_position <= position.value,
          "a streaming head's home does not hold a block that others need");
  return *at;
}

}  // namespace

void WindowExchange::start(LayerId layer, const WindowChunk& chunk, const SequenceCache& cache,
                           const OwnPieces& own) {
  layer_ = layer;
  peers_.resize(static_cast<std::size_t>(stage_.n_ranks()));
  const LayerHomes& homes = stage_.layer(layer);
  blocks_.resize(std::max(blocks_.size(), homes.windowed.size()));
  for (auto& blocks : blocks_) blocks.clear();
  const RingPos me = stage_.position();
  for (const RingPos from : peers_.ids()) {
    if (from == me) continue;
    Peer& peer = peers_[from];
    peer.expected = window_pieces(chunk, homes.windowed_homes, from, me);
    if (peer.expected.empty()) continue;
    const std::size_t n_bytes = peer.expected.size() * shape_.bytes();
    std::byte* in = peer.in.reserve(context_.stream, n_bytes);
    peer.receive =
        context_.comm.start_receive(static_cast<int>(from.value), {Traffic::kHalo}, {in, n_bytes});
  }
  for (const RingPos to : peers_.ids()) {
    if (to != me) send_to(to, chunk, cache, own);
  }
  add_own(cache, chunk, own);
}

void WindowExchange::send_to(RingPos to, const WindowChunk& chunk, const SequenceCache& cache,
                             const OwnPieces& own) {
  const LayerHomes& homes = stage_.layer(layer_);
  const auto pieces = window_pieces(chunk, homes.windowed_homes, stage_.position(), to);
  if (pieces.empty()) return;
  Peer& peer = peers_[to];
  const std::size_t n_bytes = pieces.size() * shape_.bytes();
  std::byte* out = peer.out.reserve(context_.stream, n_bytes);
  std::vector<CopyRowsItem> copies;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    copies.push_back({.to = out + i * shape_.bytes(),
                      .from = find(pieces[i], cache, own),
                      .row_bytes = shape_.bytes()});
  }
  copy_rows(context_.stream, copies);
  peer.send =
      context_.comm.start_send(static_cast<int>(to.value), {Traffic::kHalo}, {out, n_bytes});
}

const std::byte* WindowExchange::find(const WindowPiece& piece, const SequenceCache& cache,
                                      const OwnPieces& own) const {
  if (piece.from_home) {
    const auto& windowed = stage_.layer(layer_).windowed;
    const KvHeadId kv_head = windowed[static_cast<std::size_t>(piece.head)];
    return block_with(cache.head(layer_, kv_head).blocks(), {piece.tokens.begin}).data;
  }
  const auto at = std::lower_bound(own.pieces.begin(), own.pieces.end(), piece.tokens);
  const auto index = static_cast<std::size_t>(piece.head) * own.pieces.size() +
                     static_cast<std::size_t>(at - own.pieces.begin());
  return own.bytes + index * shape_.bytes();
}

// What is here without any transfer: as the home, all of earlier chunks; and the own slabs.
void WindowExchange::add_own(const SequenceCache& cache, const WindowChunk& chunk,
                             const OwnPieces& own) {
  const LayerHomes& homes = stage_.layer(layer_);
  for (std::size_t i = 0; i < homes.windowed.size(); ++i) {
    if (homes.windowed_homes[i] == stage_.position()) {
      for (const KvBlockRef& block : cache.head(layer_, homes.windowed[i]).blocks()) {
        if (block.first_position < chunk.tokens().begin) blocks_[i].push_back(block);
      }
    }
    for (std::size_t j = 0; j < own.pieces.size(); ++j) {
      blocks_[i].push_back({.data = own.bytes + (i * own.pieces.size() + j) * shape_.bytes(),
                            .first_position = own.pieces[j].begin,
                            .n_tokens = own.pieces[j].size()});
    }
  }
}

void WindowExchange::finish() {
  for (const RingPos from : peers_.ids()) {
    Peer& peer = peers_[from];
    context_.wait(peer.receive, from);
    for (std::size_t j = 0; j < peer.expected.size(); ++j) {
      const WindowPiece& piece = peer.expected[j];
      blocks_[static_cast<std::size_t>(piece.head)].push_back(
          {.data = peer.in.data() + j * shape_.bytes(),
           .first_position = piece.tokens.begin,
           .n_tokens = piece.tokens.size()});
    }
    peer.expected.clear();
  }
  for (auto& blocks : blocks_) {
    std::ranges::sort(blocks, {}, &KvBlockRef::first_position);
  }
  for (const RingPos to : peers_.ids()) context_.wait(peers_[to].send, to);
}

std::size_t WindowExchange::buffer_bytes() const {
  std::size_t bytes = 0;
  for (const Peer& peer : peers_) bytes += peer.in.capacity() + peer.out.capacity();
  return bytes;
}

}  // namespace longhaul
