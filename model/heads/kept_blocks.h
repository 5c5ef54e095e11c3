// How many blocks of cache a head takes: closed formulas. Pure. Caches free what hidden_positions
// says, and their bytes are tested against the exact formulas, by which `longhaul eval methods`
// predicts (document_blocks, open_blocks). The planner counts with the bounds max_kept_blocks and
// gathered_blocks, the coordinator's budget with max_owned_blocks and max_open_blocks.
//
// Block b of a head holds positions [b * block_size, (b + 1) * block_size). A full block is kept
// while a query at n_tokens or later can see one of its tokens; the partial last one always.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "model/heads/head_table.h"

namespace longhaul {

// Positions that no query from position n_tokens on sees: whole blocks of them are freed.
Extent hidden_positions(const KeyWindow& window, std::int64_t n_tokens);

// Blocks held after n_tokens tokens, counting only those from number first_block on. Exact after
// every step.
std::int64_t kept_blocks(const KeyWindow& window, std::int64_t block_size, std::int64_t n_tokens,
                         std::int64_t first_block = 0);

// The most blocks held at any time up to n_tokens tokens, also in the middle of a decode step, when
// the new token is there and the oldest not yet gone; nor those that the newest n_guesses tokens,
// which may be taken back, would hide.
std::int64_t max_kept_blocks(const KeyWindow& window, std::int64_t block_size,
                             std::int64_t n_tokens, std::int64_t n_guesses = 0);

// Blocks of a head that was cut down to n_kept slots when its sequence had n_cut tokens, and has
// n_tokens since: slots, not positions, fill its blocks.
std::int64_t compacted_blocks(std::int64_t n_kept, std::int64_t n_cut, std::int64_t block_size,
                              std::int64_t n_tokens);

// Over `layers` of a table, of a sequence of n_tokens tokens that shares nothing.
std::int64_t sequence_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                             std::int64_t n_tokens);

// The same of a document that is whole: methods that choose tokens then (KeepBudget) hold only
// these any more. Where heads of a layer share a budget, as if each took its even part of it.
std::int64_t document_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                             std::int64_t n_tokens);

// Where tokens are quantised in groups a sequence has its newest tokens in open blocks
// (worker/kv/sequence_cache.h): of what sequence_blocks counts, so many are open, the partial last
// ones.
std::int64_t open_blocks(const HeadTable& heads, Extent layers, std::int64_t block_size,
                         std::int64_t n_tokens);
// The most that a sequence owns at any time, beside the closed ones that max_owned_blocks counts:
// also those that guesses fill, and those of a chunk in the layer at hand.
std::int64_t max_open_blocks(const HeadTable& heads, std::int64_t block_size,
                             std::int64_t chunk_len, std::int64_t n_guesses = 0);

// Blocks that a head's tokens are gathered in which a method keeps of n_tokens, while those that
// they come from are still there.
std::int64_t gathered_blocks(const HeadPolicy& policy, std::int64_t block_size,
                             std::int64_t n_tokens);

// The most blocks of all heads that a sequence owns at any time when it made the tokens at
// positions `made` itself, computing at most chunk_len tokens in a step: a layer's heads hold the
// chunk beside what they keep while that layer is computed, one layer at a time. A whole sequence
// made [0, n); a fork made what comes after its parent's, and owns a copy of the block that both
// are in. n_guesses as above.
std::int64_t max_owned_blocks(const HeadTable& heads, std::int64_t block_size, Extent made,
                              std::int64_t chunk_len, std::int64_t n_guesses = 0);

// The heads of one layer, by what they keep.
struct LayerHeads {
  std::int64_t n_all = 0;       // keep everything: their keys travel round the ring
  std::int64_t n_windowed = 0;  // keep a window
  KeyWindow window = {};        // the largest of them
};
LayerHeads layer_heads(const HeadTable& heads, LayerId layer);

}  // namespace longhaul
