#include "worker/snapshot/frozen_cache.h"

#include <algorithm>

#include "kernels/kv_close.h"

namespace longhaul {
namespace {

// Blocks of the piece that have rows to write.
std::span<const KvBlockRef> written_blocks(const HeadPiece& piece) {
  if (piece.without.begin > 0 || piece.is_chosen) return piece.blocks;
  const auto first = std::find_if(piece.blocks.begin(), piece.blocks.end(), [&](const auto& block) {
    return block.first_position + block.n_tokens > piece.without.end;
  });
  return {first, piece.blocks.end()};
}

// Whether the sequence may free the block, or append to it, while it is written. Full blocks of a
// head that keeps every token, or chosen ones, stay until the sequence goes.
bool may_change(const HeadPiece& piece, const KvBlockRef& block, std::int64_t block_size) {
  return !piece.window.is_unlimited() || block.n_tokens < block_size;
}

std::int64_t n_copied(const HeadPiece& piece, std::int64_t block_size) {
  const std::span<const KvBlockRef> blocks = written_blocks(piece);
  return std::count_if(blocks.begin(), blocks.end(), [&](const KvBlockRef& block) {
    return may_change(piece, block, block_size);
  });
}

}  // namespace

std::size_t FrozenCache::copied_bytes(const SequenceCache& cache,
                                      std::span<const HeadPiece> pieces) {
  const KvBlockShape& shape = cache.layout().shape();
  std::int64_t n_blocks = 0;
  std::size_t n_bytes = 0;
  for (const HeadPiece& piece : pieces) {
    n_blocks += n_copied(piece, shape.block_size);
    n_bytes += piece.attention.size_bytes() + piece.local_attention.size_bytes();
    n_bytes += piece.positions.size() * sizeof(TokenPos);
    n_bytes += piece.seen_by.size() * sizeof(SeenBy);
    if (piece.open.n_tokens > 0) n_bytes += open_block_shape(shape).bytes();
  }
  return n_bytes + static_cast<std::size_t>(n_blocks) * shape.bytes();
}

FrozenCache::FrozenCache(const SequenceCache& cache, std::span<const HeadPiece> pieces,
                         const PartRest& rest)
    : queries_(cache.observed()),
      last_hidden_(rest.last_hidden.begin(), rest.last_hidden.end()),
      pieces_(pieces.begin(), pieces.end()),
      rest_(rest) {
  const KvBlockShape& shape = cache.layout().shape();
  copied_.resize(copied_bytes(cache, pieces));
  std::byte* to = copied_.data();
  for (HeadPiece& piece : pieces_) {
    const std::span<const KvBlockRef> written = written_blocks(piece);
    std::vector<KvBlockRef>& blocks = blocks_.emplace_back(written.begin(), written.end());
    for (KvBlockRef& block : blocks) {
      if (!may_change(piece, block, shape.block_size)) continue;
      std::copy_n(block.data, shape.bytes(), to);
      block.data = to;
      to += shape.bytes();
    }
    if (piece.window.is_unlimited() && !blocks.empty()) {
      shared_.push_back(
          cache.head(piece.layer, piece.kv_head).full_blocks({written.front().first_position}));
    }
    for (std::span<const double>* sums : {&piece.attention, &piece.local_attention})
      *sums = attention_.emplace_back(sums->begin(), sums->end());
    piece.blocks = blocks;
    if (piece.open.n_tokens > 0) {
      const std::size_t n_bytes = open_block_shape(shape).bytes();
      std::copy_n(piece.open.data, n_bytes, to);
      piece.open.data = to;
      to += n_bytes;
    }
  }
  // What was pointed to lies in vectors that grow no more.
  rest_.last_hidden = last_hidden_;
}

}  // namespace longhaul
