// A worker's forward pass when the model or the document is spread over several ranks: the stage's
// ring, the links to the neighbouring stages, and the sliced vocabulary. What Transformer is for
// one rank alone.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cluster/wire/phase.h"
#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"
#include "worker/logits_reader.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_chunk.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_decode.h"
#include "worker/ring/ring_place.h"
#include "worker/ring/ring_prefill.h"
#include "worker/ring/ring_stage.h"
#include "worker/ring/stage_links.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class RingWorker {
 public:
  // Collective over place.comm, which takes the memory of compute.stream()'s device.
  RingWorker(const RingPlace& place, LayerCompute& compute, const CacheLayout& layout,
             PhaseBoard* board, Trace* trace);

  // Collective over the replica. Appends the chunk's tokens to the sequence, which holds
  // first_position tokens. Returns the hidden states that this rank computed after the model's last
  // layer, [n, d_model], valid until the next call: with WantedRows::kAll those of its slabs in
  // token order, else the last token's on the rank that answers; none in other stages.
  TensorView<const float, 2> prefill(SequenceCache& cache, std::int64_t first_position,
                                     std::span<const std::int32_t> tokens, WantedRows wanted);
  // Collective over the replica. One new token for each row; returns the hidden states of all rows
  // on every rank of the last stage.
  TensorView<const float, 2> decode(std::span<const DecodeRow> rows,
                                    std::span<const std::int32_t> tokens);

  // Collective over the last stage's ring. Reads the logits of such rows, each rank its slice of
  // the vocabulary; answers appear on the rank that answers.
  void pick(const TensorView<const float, 2>& hidden, std::span<const LogitsQuestion> questions,
            LogitsReader& reader, std::vector<PickedToken>& answers);
  // Collective over the last stage's ring. The answers of all ranks for their own slabs, in token
  // order, on the rank that answers; empty on the others.
  std::vector<PickedToken> gather_scored(const RingChunk& chunk, std::vector<PickedToken> own);

  // This rank answers for the replica: the last stage's ring position 0, where the last token is.
  bool answers() const { return stage_.is_last() && stage_.position() == 0; }
  bool is_last_stage() const { return stage_.is_last(); }
  const RingStage& stage() const { return stage_; }
  RingChunk chunk_of(std::int64_t first_position, std::int64_t n_tokens, WantedRows wanted) const;

  // Blocks until what this rank sent to the next stage has arrived.
  void drain() { links_.drain(); }
  // Breaks the communicators of the whole job, so that no rank waits for this one.
  void abort(ErrorCode code, const std::string& message) noexcept {
    replica_.comm.abort(code, message);
  }
  // Bytes sent so far, by kind.
  TrafficCounters traffic() const;
  std::size_t buffer_bytes() const { return prefill_.buffer_bytes(); }

 private:
  void set_positions(std::span<const Extent> slabs);
  void read_slices(const TensorView<const float, 2>& logits,
                   std::span<const LogitsQuestion> questions, LogitsReader& reader,
                   std::vector<PickedToken>& answers);

  RingStage stage_;
  LayerCompute& compute_;
  std::unique_ptr<Communicator> ring_comm_;
  RingContext replica_;
  RingContext ring_;
  StageLinks links_;
  RingPrefill prefill_;
  RingDecode decode_;
  ByteBuffer logits_;           // [n_rows, vocab_size]
  ByteBuffer received_logits_;  // a slice of them
};

}  // namespace longhaul
