// The plan: which rank computes and stores what. Plain, comparable values that every process can
// hold; made by make_plan, verified by check_plan, written by plan_json.
//
// Vectors marked [ring] are indexed by the position in Stage::ring, not by the rank's number.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/head_profile.h"
#include "partition/homes.h"
#include "partition/kv_format.h"
#include "partition/slabs.h"

namespace longhaul {

// Consecutive layers, served by one ring of ranks.
struct Stage {
  // What token_share sums to.
  static constexpr std::int64_t kTokenShareTotal = std::int64_t{1} << 20;

  Extent layers;
  std::vector<Rank> ring;                 // in the order in which blocks and queries are passed
  std::vector<std::int64_t> token_share;  // [ring] of every chunk: follows measured speed; may be 0
  std::vector<std::vector<Home>> home;    // [layer - layers.begin][kv_head]
  std::vector<Extent> ffn_slice;          // [ring] columns of d_ff that a rank computes in decode
  std::vector<Extent> vocab_slice;  // [ring] rows of the output head, in the last stage; empty
                                    // extents in the others

  const Home& home_of(std::int64_t layer, std::int64_t kv_head) const {
    return home[static_cast<std::size_t>(layer - layers.begin)][static_cast<std::size_t>(kv_head)];
  }
  // Where the rank stands in the ring; nullopt for ranks of other stages.
  std::optional<std::int64_t> ring_position(Rank rank) const {
    for (std::size_t i = 0; i < ring.size(); ++i) {
      if (ring[i] == rank) return static_cast<std::int64_t>(i);
    }
    return std::nullopt;
  }
  bool operator==(const Stage&) const = default;
};

// Stages that together hold the whole model.
struct Replica {
  std::vector<Stage> stages;  // in the order of the layers
  bool operator==(const Replica&) const = default;
};

struct Plan {
  std::string model;  // fingerprint of the model that it was made for
  KvFormat kv;
  std::int64_t chunk_len = 0;  // tokens of a prefill chunk, over the whole ring
  HeadRoles roles;
  std::vector<Replica> replicas;
  bool operator==(const Plan&) const = default;
};

// The rank that stores block `block` of this head: weighted round-robin (partition/homes.h).
inline Rank home_of_block(const Stage& stage, std::int64_t layer, std::int64_t kv_head,
                          std::int64_t block) {
  return home_of_block(stage.home_of(layer, kv_head), block);
}

// The slabs of a chunk of n_tokens tokens that starts at position chunk_start (partition/slabs.h).
inline std::vector<Slab> slabs_of_chunk(const Stage& stage, std::int64_t n_tokens,
                                        std::int64_t chunk_start, std::int64_t block_size) {
  return slabs_of_chunk(stage.token_share, {chunk_start, chunk_start + n_tokens}, block_size);
}

}  // namespace longhaul
