// A rank's part of a chunk as cache blocks: its own K and V are packed into blocks, which others
// get; and of the chunk's blocks, whoever made them, it keeps those that are at home here. Where
// tokens are quantised in groups these are the blocks that become full (open_chunk.h).
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kernels/kv_copy.h"
#include "partition/window_pieces.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/key_ring.h"
#include "worker/ring/open_chunk.h"
#include "worker/ring/prefill_layer.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it. Local.
class ChunkBlocks {
 public:
  ChunkBlocks(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage)
      : compute_(compute), layout_(layout), stage_(stage) {}

  // The pieces of blocks that this rank makes of the chunk.
  void start(const RingChunk& chunk);
  // Own K and V of a layer into blocks, valid until the next layer; where they lie in open blocks,
  // `open` (else null), by closing the full ones.
  void pack(const PrefillLayer& layer, const OpenChunk* open);

  // Of the packed layer: what every rank puts on the ring; this one's bytes of it; and those of
  // windowed head i, block i * pieces().size() + j for piece j.
  const OfRing<Train>& trains() const { return trains_; }
  const std::byte* retrieval() { return packed_.data(); }
  const std::byte* windowed() { return packed_.data() + windowed_offset_; }
  std::span<const Extent> pieces() const { return pieces_; }

  // As blocks pass their home, the home copies them into the caches. Throws kOutOfMemory.
  void keep(const PrefillLayer& layer, const Train& train, const std::byte* bytes);
  // The same of windowed heads: their homes keep the pieces that kept_pieces() says, and
  // blocks_of(i) are those that are here of windowed head i.
  using BlocksOf = std::function<std::span<const KvBlockRef>(std::size_t)>;
  void keep(const PrefillLayer& layer, const WindowChunk& window, const BlocksOf& blocks_of);

  std::size_t buffer_bytes() const { return packed_.capacity(); }

 private:
  void append(std::span<const KvHeadId> heads, std::byte* packed);
  void close(std::span<const KvHeadId> heads, const OpenChunk& open, std::byte* packed);
  void add_copy(const PrefillLayer& layer, KvHeadId kv_head, const KvBlockRef& block);

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  std::vector<Extent> pieces_;
  ByteBuffer packed_;  // [KV heads: retrieval, then windowed][pieces] blocks
  std::size_t windowed_offset_ = 0;
  OfRing<Train> trains_;
  std::vector<KvCopyItem> copies_;
};

}  // namespace longhaul
