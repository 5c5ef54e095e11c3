// Prefill on a ring where tokens are quantised in groups (partition/open_blocks.h): while a layer
// is computed, this rank's tokens of the chunk lie in open blocks here, where its own queries meet
// them. What homes have of the block in which the chunk begins comes first; the block that the
// chunk leaves open goes to its homes. Both travel whole.
#pragma once
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "kernels/copy_rows.h"
#include "kernels/kv_block.h"
#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/prefill_layer.h"
#include "worker/ring/ring_context.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class OpenChunk {
 public:
  OpenChunk(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
            RingContext& context);

  // The parts of blocks in which this rank makes the chunk's tokens.
  void start(const RingChunk& chunk);

  // Collective over the ring, for each layer in this order; between them other transfers may be
  // under way.
  // Starts what comes from homes.
  void fetch(const PrefillLayer& layer);
  // Own K and V of the layer into the blocks, behind what came. Starts what goes to homes, which
  // make room for it. Throws kOutOfMemory.
  void fill(const PrefillLayer& layer);
  // Blocks until all has come and gone.
  void wait();

  // After fill(), until the next layer: a head's blocks in which own tokens lie, ascending; full
  // ones are to be closed.
  std::span<const KvBlockRef> blocks(KvHeadId kv_head) const;

  std::size_t buffer_bytes() const { return memory_.capacity(); }

 private:
  void move(RingPos from, const std::byte* block, RingPos to, std::byte* place);
  void start_moves();
  std::byte* room_for(const PrefillLayer& layer, KvHeadId kv_head, Extent tokens) const;
  void append(const StepBuffers& rows);
  void send_home(const PrefillLayer& layer);

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  KvBlockShape shape_;  // of open blocks
  std::vector<Extent> pieces_;
  ByteBuffer memory_;               // [KV heads][pieces] blocks
  std::vector<std::byte*> places_;  // the same
  std::vector<KvBlockRef> blocks_;  // the same
  std::vector<CopyRowsItem> copies_;
  std::vector<Incoming> incoming_;  // to be started
  std::vector<Outgoing> outgoing_;
  std::vector<std::pair<RingPos, Transfer>> under_way_;  // with whom
};

}  // namespace longhaul
