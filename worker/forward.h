// A worker's pass through the model's layers: one concept, whoever else takes part. Alone
// (alone_forward.h) a rank has all keys of its sequences; on a ring (ring/ring_forward.h) ranks
// share documents, layers and the vocabulary. The third of the interfaces (docs/design.md); the
// arithmetic of a layer is the same code under both (layer_compute.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cluster/comm/traffic.h"
#include "cluster/wire/step.h"
#include "kernels/tensor.h"
#include "worker/kv/sequence_cache.h"
#include "worker/logits_reader.h"

namespace longhaul {

enum class WantedRows {
  kLast,  // of the model's last layer only the chunk's last token is computed
  kAll,   // every token is scored
};

// The next tokens of one sequence.
struct ForwardChunk {
  SequenceCache& cache;
  TokenPos first_position{0};  // after the tokens that the sequence holds so far
  std::span<const std::int32_t> tokens;
  WantedRows wanted = WantedRows::kLast;

  Extent positions() const {
    const std::int64_t first = first_position.value;
    return {first, first + static_cast<std::int64_t>(tokens.size())};
  }
};

// A sequence of a decode batch and where its new token stands. Guesses may follow it, which stay
// beside all that was there: what they hide is not freed.
struct DecodeRow {
  SequenceCache* cache = nullptr;
  TokenPos position{};
  std::int64_t n_guesses = 0;
  std::int64_t n_uncertain = 0;  // tokens before it, and itself, that may be taken back as well

  std::int64_t n_tokens() const { return 1 + n_guesses; }
  Extent positions() const { return {position.value, position.value + n_tokens()}; }
};

// Hidden states after the model's last layer that this rank has of a chunk.
struct HiddenRows {
  TensorView<const float, 2> rows;  // [n, d_model], valid until the next pass
  std::vector<Extent> tokens;       // their positions, ascending
};

// Used by one thread. With other ranks prefill, decode, compact, pick and gather_scored are
// collective over the replica.
class Forward {
 public:
  virtual ~Forward() = default;

  // Runs the layers over the chunk and appends its tokens to the sequence's caches. Throws
  // kOutOfMemory when the cache is full, and kInvalidArgument for a token outside the vocabulary;
  // after kOutOfMemory the caches can only be dropped. The chunk's last row is with the rank that
  // answers; with WantedRows::kAll each row is with one rank.
  virtual HiddenRows prefill(const ForwardChunk& chunk) = 0;
  // One new token for each row, and its guesses behind it. Hidden states of all tokens [n_tokens,
  // d_model], valid until the next pass, on every rank that has the model's last layer. Throws as
  // prefill does.
  virtual TensorView<const float, 2> decode(std::span<const DecodeRow> rows,
                                            std::span<const std::int32_t> tokens) = 0;

  // Cuts caches down to what methods keep that choose at this time (worker/attention/compaction.h).
  // Throws kOutOfMemory; the caches can then only be dropped.
  virtual void compact(SequenceCache& cache, KeepWhen when) = 0;

  // Whether this rank answers for the replica.
  virtual bool answers() const = 0;
  // Answers one question for each of decode()'s tokens, on the rank that answers.
  virtual void pick(const TensorView<const float, 2>& hidden,
                    std::span<const LogitsQuestion> questions, LogitsReader& reader,
                    std::vector<PickedToken>& answers) = 0;
  // Every rank's scores from its rows of a chunk at these positions, in token order, on the rank
  // that answers; empty on the others. A row scores its token's successor, the last one none.
  virtual std::vector<PickedToken> gather_scored(Extent positions,
                                                 std::vector<PickedToken> own) = 0;

  // Whether a GPU's decode steps may be noted and queued as one graph: nothing in them waits for
  // other ranks.
  virtual bool may_be_noted() const = 0;
  // Lets what this rank sent go on, without blocking; false when all of it has arrived. Whoever
  // waits for something else calls it meanwhile: transfers between hosts advance in calls only.
  virtual bool advance() = 0;
  // Blocks until what this rank sent has arrived.
  virtual void drain() = 0;
  // Bytes sent to other ranks so far, by kind.
  virtual TrafficCounters traffic() const = 0;
  // Of what travels.
  virtual std::size_t buffer_bytes() const = 0;
};

}  // namespace longhaul
