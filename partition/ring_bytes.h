// What must travel between the ranks of a ring, in bytes of payload (message headers apart): the
// formulas that the worker's counters are compared with. All figures are of one layer; retrieval
// here means a head that keeps everything (model/heads).
//
// Blocks travel whole, the partial last one too (where tokens are quantised in groups it is open,
// and of what is stored whole blocks travel only: partition/open_blocks.h); queries, partial sums
// (m, l, o) and hidden states are f32. A layer without retrieval heads sends no keys and no queries
// round the ring.
#pragma once
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/kept_blocks.h"
#include "model/model_spec.h"
#include "partition/kv_format.h"
#include "partition/plan.h"
#include "partition/slabs.h"

namespace longhaul {

// Keys travel inside the chunk: in each of P-1 steps a rank passes on what it has; it sends the
// blocks of every slab but those of the next rank's own, which have come all the way round.
// Bytes sent by each ring position.
IndexedVector<RingPos, std::int64_t> chunk_key_bytes_sent(std::span<const Slab> slabs,
                                                          std::int64_t n_all_heads,
                                                          const KvFormat& kv);

// Open blocks that a chunk's begun and unfinished blocks send between their homes and their makers.
// Bytes sent by each ring position.
IndexedVector<RingPos, std::int64_t> open_bytes_sent(const Stage& stage,
                                                     std::span<const Slab> slabs, LayerId layer,
                                                     const KvFormat& kv);

// Bytes on all links together, for one layer and one chunk.
struct ChunkTraffic {
  std::int64_t chunk_keys = 0;       // retrieval heads, inside the chunk
  std::int64_t windows = 0;          // windowed heads: sink and window before each slab, and what
                                     // their homes keep (partition/window_pieces.h); sums of
                                     // what is gone (partition/sum_hops.h)
  std::int64_t history_keys = 0;     // retrieval heads, history, if keys travel
  std::int64_t history_queries = 0;  // retrieval heads, history, if queries travel
  std::int64_t open_blocks = 0;      // of tokens that are quantised in groups (open_blocks.h)
};
ChunkTraffic chunk_traffic(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                           LayerId layer, Extent tokens);

// All-reduces up to this size take one round, in which every rank sends everything to every other
// (as cluster/comm does; a test compares).
inline constexpr std::int64_t kOneRoundReduceBytes = 64 * 1024;

// Decode, one layer, a batch of sequences. Each rank contributes (m, l) of the query heads whose KV
// head has several homes to an all-gather, and two sums of hidden states (attention, FFN) to
// all-reduces; with int8 weights its parts of o of those heads, too, which are quantised as a
// whole.
struct DecodeTraffic {
  std::int64_t gather_bytes = 0;  // one rank's contribution; 0 when every head has one home
  std::int64_t reduce_bytes = 0;  // one all-reduce's vector; two of them a layer
  std::int64_t join_bytes = 0;  // the vector of the all-reduce of parts of heads; 0: there is none
  std::int64_t total = 0;       // on all links: every contribution to every other rank, and per
                                // all-reduce P (P-1) vectors in one round, or 2 (P-1) in two
};
DecodeTraffic decode_traffic(const Stage& stage, const ModelSpec& spec, LayerId layer,
                             std::int64_t batch_size, DType weights);

}  // namespace longhaul
