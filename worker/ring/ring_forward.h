// A worker's forward pass when the model or the document is spread over several ranks: the stage's
// ring, the links to the neighbouring stages, and the sliced vocabulary.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cluster/wire/phase.h"
#include "worker/forward.h"
#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_chunk.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_decode.h"
#include "worker/ring/ring_place.h"
#include "worker/ring/ring_prefill.h"
#include "worker/ring/ring_stage.h"
#include "worker/ring/stage_links.h"

namespace longhaul {

// Where the pass runs; what it names outlives the pass.
struct RingForwardConfig {
  const RingPlace& place;
  const RingStage& stage;  // of place.plan
  Communicator& comm;      // the replica's; takes the memory of the compute's stream
  PhaseBoard* board = nullptr;
  Trace* trace = nullptr;
};

// Used by one thread; what it is given must outlive it.
class RingForward final : public Forward {
 public:
  // Collective over config.comm.
  RingForward(const RingForwardConfig& config, LayerCompute& compute, const CacheLayout& layout);

  // The rows are those of this rank's slabs, or the last token's on the rank that answers; none in
  // stages before the last.
  HiddenRows prefill(const ForwardChunk& chunk) override;
  TensorView<const float, 2> decode(std::span<const DecodeRow> rows,
                                    std::span<const std::int32_t> tokens) override;
  void compact(SequenceCache& cache, KeepWhen when) override;
  // The last stage's first in the ring, where a chunk's last token is.
  bool answers() const override { return stage_.is_last() && stage_.position() == RingPos{0}; }
  // Each rank reads the logits of its slice of the vocabulary.
  void pick(const TensorView<const float, 2>& hidden, std::span<const LogitsQuestion> questions,
            LogitsReader& reader, std::vector<PickedToken>& answers) override;
  std::vector<PickedToken> gather_scored(Extent positions, std::vector<PickedToken> own) override;
  // Where ranks exchange without hosts nothing in a step waits; elsewhere what waits submits what
  // has been noted so far.
  bool may_be_noted() const override { return true; }
  bool advance() override { return links_.advance(); }
  void drain() override { links_.drain(); }
  TrafficCounters traffic() const override;
  std::size_t buffer_bytes() const override { return prefill_.buffer_bytes(); }

 private:
  RingChunk chunk_of(Extent positions, WantedRows wanted) const;
  void set_positions(std::span<const Extent> slabs);
  void read_slices(const TensorView<const float, 2>& logits,
                   std::span<const LogitsQuestion> questions, LogitsReader& reader,
                   std::vector<PickedToken>& answers);

  const RingStage& stage_;
  LayerCompute& compute_;
  const CacheLayout& layout_;
  std::unique_ptr<Communicator> ring_comm_;
  RingContext replica_;
  RingContext ring_;
  StageLinks links_;
  RingPrefill prefill_;
  RingDecode decode_;
  ByteBuffer logits_;           // [n_rows, vocab_size]
  ByteBuffer received_logits_;  // the other ranks' slices
};

}  // namespace longhaul
