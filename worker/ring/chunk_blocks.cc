#include "worker/ring/chunk_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "kernels/kv_close.h"
#include "worker/head_rows.h"

namespace longhaul {

void ChunkBlocks::start(const RingChunk& chunk) {
  pieces_.clear();
  for (const Extent& slab : chunk.stored_made[stage_.position()]) {
    for (const Extent& piece : block_pieces(slab, stage_.block_size())) pieces_.push_back(piece);
  }
}

void ChunkBlocks::pack(const PrefillLayer& layer, const OpenChunk* open) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  std::vector<KvHeadId> heads = layer.homes.retrieval;
  heads.insert(heads.end(), layer.homes.windowed.begin(), layer.homes.windowed.end());
  const KvBlockShape& shape = layout_.shape();
  const std::size_t n_blocks = heads.size() * pieces_.size();
  std::byte* packed = packed_.reserve(compute_.stream(), n_blocks * shape.bytes());
  windowed_offset_ = layer.homes.retrieval.size() * pieces_.size() * shape.bytes();
  if (open != nullptr) {
    close(heads, *open, packed);
  } else {
    append(heads, packed);
  }
  trains_.resize(layer.chunk.stored_made.size());
  for (const RingPos p : trains_.ids()) {
    trains_[p].clear();
    for (const KvHeadId kv_head : layer.homes.retrieval) {
      for (const Extent& slab : layer.chunk.stored_made[p]) {
        for (const Extent& piece : block_pieces(slab, stage_.block_size())) {
          trains_[p].push_back({kv_head, piece});
        }
      }
    }
  }
}

void ChunkBlocks::append(std::span<const KvHeadId> heads, std::byte* packed) {
  const KvBlockShape& shape = layout_.shape();
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < heads.size() * pieces_.size(); ++i)
    blocks.push_back(packed + i * shape.bytes());
  std::vector<KvAppendItem> items;
  const StepBuffers& b = compute_.buffers();
  for (std::size_t h = 0; h < heads.size(); ++h) {
    std::int64_t row = 0;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const Extent rows{row, row + pieces_[i].size()};
      items.push_back({.k = head_rows(b.k, rows, heads[h]),
                       .v = head_rows(b.v, rows, heads[h]),
                       .blocks = std::span(blocks).subspan(h * pieces_.size() + i, 1)});
      row = rows.end;
    }
  }
  kv_append(compute_.stream(), {.shape = shape, .items = items});
}

void ChunkBlocks::close(std::span<const KvHeadId> heads, const OpenChunk& open, std::byte* packed) {
  const KvBlockShape& shape = layout_.shape();
  std::vector<KvCloseItem> items;
  for (const KvHeadId head : heads) {
    for (const KvBlockRef& block : open.blocks(head)) {
      if (block.n_tokens < shape.block_size) continue;
      items.push_back({.open = block.data, .closed = packed + items.size() * shape.bytes()});
    }
  }
  kv_close(compute_.stream(), {.shape = shape, .items = items});
}

void ChunkBlocks::keep(const PrefillLayer& layer, const Train& train, const std::byte* bytes) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  copies_.clear();
  for (std::size_t i = 0; i < train.size(); ++i) {
    const auto& [kv_head, tokens] = train[i];
    if (stage_.home_of(layer.number, kv_head, {tokens.begin}) != stage_.position()) continue;
    add_copy(layer, kv_head,
             {.data = bytes + i * layout_.shape().bytes(),
              .first_position = tokens.begin,
              .n_tokens = tokens.size()});
  }
  kv_copy(compute_.stream(), {.shape = layout_.shape(), .items = copies_});
}

void ChunkBlocks::keep(const PrefillLayer& layer, const WindowChunk& window,
                       const BlocksOf& blocks_of) {
  const PhaseTimer timer(compute_.times(), Phase::kAppend);
  const LayerHomes& homes = layer.homes;
  const std::vector<Extent> kept = kept_pieces(window);
  copies_.clear();
  for (std::size_t i = 0; i < homes.windowed.size(); ++i) {
    if (homes.windowed_homes[i] != stage_.position()) continue;
    const std::span<const KvBlockRef> blocks = blocks_of(i);
    for (const Extent& piece : kept) {
      const auto at = std::find_if(blocks.begin(), blocks.end(), [&](const KvBlockRef& b) {
        return b.first_position == piece.begin && b.n_tokens == piece.size();
      });
      require(at != blocks.end(), "a streaming head's home did not get a block that it keeps");
      add_copy(layer, homes.windowed[i], *at);
    }
  }
  kv_copy(compute_.stream(), {.shape = layout_.shape(), .items = copies_});
}

// Makes room for a block in its cache and adds it to what is copied there.
void ChunkBlocks::add_copy(const PrefillLayer& layer, KvHeadId kv_head, const KvBlockRef& block) {
  const auto place = layer.cache.head(layer.number, kv_head)
                         .store({block.first_position, block.first_position + block.n_tokens});
  if (!place) {
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("no cache block is free for tokens from {} on of layer {}, KV head {}",
                            block.first_position, layer.number.value, kv_head.value));
  }
  copies_.push_back({.from = block.data,
                     .from_slot = 0,
                     .to = place->block,
                     .to_slot = place->first_slot.value,
                     .n_tokens = block.n_tokens});
}

}  // namespace longhaul
