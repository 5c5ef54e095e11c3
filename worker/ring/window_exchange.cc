#include "worker/ring/window_exchange.h"

#include <algorithm>
#include <utility>

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
  std::vector<Incoming> in;
  std::vector<Outgoing> out;
  for (const RingPos peer : peers_.ids()) {
    if (peer == me) continue;
    in.push_back({static_cast<int>(peer.value), room_from(peer, chunk)});
    out.push_back({static_cast<int>(peer.value), packed_for(peer, chunk, cache, own)});
  }
  Exchange moving = context_.comm.start_exchange({Traffic::kHalo}, in, out);
  std::size_t i = 0;
  for (const RingPos peer : peers_.ids()) {
    if (peer == me) continue;
    peers_[peer].receive = std::move(moving.receives[i]);
    peers_[peer].send = std::move(moving.sends[i++]);
  }
  add_own(cache, chunk, own);
}

// For what comes from a peer.
std::span<std::byte> WindowExchange::room_from(RingPos from, const WindowChunk& chunk) {
  Peer& peer = peers_[from];
  peer.expected =
      window_pieces(chunk, stage_.layer(layer_).windowed_homes, from, stage_.position());
  const std::size_t n_bytes = peer.expected.size() * shape_.bytes();
  return {peer.in.reserve(context_.stream, n_bytes), n_bytes};
}

std::span<const std::byte> WindowExchange::packed_for(RingPos to, const WindowChunk& chunk,
                                                      const SequenceCache& cache,
                                                      const OwnPieces& own) {
  const LayerHomes& homes = stage_.layer(layer_);
  const auto pieces = window_pieces(chunk, homes.windowed_homes, stage_.position(), to);
  const std::size_t n_bytes = pieces.size() * shape_.bytes();
  std::byte* out = peers_[to].out.reserve(context_.stream, n_bytes);
  std::vector<CopyRowsItem> copies;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    copies.push_back({.to = out + i * shape_.bytes(),
                      .from = find(pieces[i], cache, own),
                      .row_bytes = shape_.bytes()});
  }
  copy_rows(context_.stream, copies);
  return {out, n_bytes};
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
