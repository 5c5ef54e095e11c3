// The plan: which rank computes and stores what. Plain, comparable values that every process can
// hold; made by make_plan, verified by check_plan, written by plan_json.
//
// What is indexed by RingPos goes by the position in Stage::ring, not by the rank's number.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/head_table.h"
#include "partition/homes.h"
#include "partition/kv_format.h"
#include "partition/slabs.h"

namespace longhaul {

// Consecutive layers, served by one ring of ranks.
struct Stage {
  // What token_share sums to.
  static constexpr std::int64_t kTokenShareTotal = std::int64_t{1} << 20;

  Extent layers;
  IndexedVector<RingPos, Rank> ring;  // in the order in which blocks and queries are passed
  IndexedVector<RingPos, std::int64_t> token_share;  // of every chunk: follows speed; may be 0
  std::vector<IndexedVector<KvHeadId, Home>> home;   // [layer - layers.begin]
  IndexedVector<RingPos, Extent> ffn_slice;          // columns of d_ff computed in decode
  // Rows of the output head, in the last stage; empty extents in the others.
  IndexedVector<RingPos, Extent> vocab_slice;

  IdRange<LayerId> layer_ids() const { return IdRange<LayerId>(layers); }
  const Home& home_of(LayerId layer, KvHeadId kv_head) const {
    return home[static_cast<std::size_t>(layer.value - layers.begin)][kv_head];
  }
  // Where the rank stands in the ring; nullopt for ranks of other stages.
  std::optional<RingPos> ring_position(Rank rank) const {
    for (const RingPos position : ring.ids()) {
      if (ring[position] == rank) return position;
    }
    return std::nullopt;
  }
  bool operator==(const Stage&) const = default;
};

// Stages that together hold the whole model.
struct Replica {
  std::vector<Stage> stages;  // in the order of the layers
  bool operator==(const Replica&) const = default;
  // Whether several ranks hold a document together.
  bool is_shared() const { return stages.size() > 1 || stages.at(0).ring.size() > 1; }
};

struct Plan {
  std::string model;  // fingerprint of the model that it was made for
  KvFormat kv;
  std::int64_t chunk_len = 0;  // tokens of a prefill chunk, over the whole ring
  HeadTable heads;
  std::vector<Replica> replicas;
  // Every result has the same bits as on one rank: each head has one home, and no sum is cut.
  bool reproducible = false;
  bool operator==(const Plan&) const = default;
};

// The rank that stores block `block` of this head: weighted round-robin (partition/homes.h).
inline Rank home_of_block(const Stage& stage, LayerId layer, KvHeadId kv_head, std::int64_t block) {
  return home_of_block(stage.home_of(layer, kv_head), block);
}

// The slabs of a chunk of n_tokens tokens that starts at position chunk_start (partition/slabs.h).
inline std::vector<Slab> slabs_of_chunk(const Stage& stage, std::int64_t n_tokens,
                                        std::int64_t chunk_start, std::int64_t block_size) {
  return slabs_of_chunk(stage.token_share, {chunk_start, chunk_start + n_tokens}, block_size);
}

}  // namespace longhaul
