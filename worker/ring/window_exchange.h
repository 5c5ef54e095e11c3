// Streaming heads in prefill: gets the blocks before this rank's slabs that its queries see, and
// what it is to keep as their home; sends the others theirs (partition/window_pieces.h).
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"
#include "partition/window_pieces.h"
#include "worker/kv/sequence_cache.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_chunk.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// This rank's own blocks of the chunk, packed: of windowed head i, piece j is block i *
// pieces.size()
// + j.
struct OwnPieces {
  std::span<const Extent> pieces;
  const std::byte* bytes = nullptr;
};

// Used by one thread.
class WindowExchange {
 public:
  WindowExchange(RingContext& context, const RingStage& stage, const KvBlockShape& shape)
      : context_(context), stage_(stage), shape_(shape) {}

  // Collective over the ring. Starts all transfers of one layer; `cache` holds the earlier chunks,
  // and it, the chunk and the own pieces stay as they are until finish() returns.
  void start(LayerId layer, const WindowChunk& chunk, const SequenceCache& cache,
             const OwnPieces& own);
  // Blocks until everything is here.
  void finish();

  // After finish(): of windowed head i, all blocks that this rank knows, of earlier chunks and of
  // this one, ascending.
  std::span<const KvBlockRef> blocks(std::size_t i) const { return blocks_[i]; }

  std::size_t buffer_bytes() const;

 private:
  struct Peer {
    ByteBuffer out;
    ByteBuffer in;
    std::vector<WindowPiece> expected;
    Transfer send;
    Transfer receive;
  };
  void add_own(const SequenceCache& cache, const WindowChunk& chunk, const OwnPieces& own);
  std::span<std::byte> room_from(RingPos from, const WindowChunk& chunk);
  std::span<const std::byte> packed_for(RingPos to, const WindowChunk& chunk,
                                        const SequenceCache& cache, const OwnPieces& own);
  const std::byte* find(const WindowPiece& piece, const SequenceCache& cache,
                        const OwnPieces& own) const;

  RingContext& context_;
  const RingStage& stage_;
  KvBlockShape shape_;
  LayerId layer_;
  OfRing<Peer> peers_;
  std::vector<std::vector<KvBlockRef>> blocks_;  // [windowed heads of the layer]
};

}  // namespace longhaul
