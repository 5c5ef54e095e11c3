// What choosing tokens and pages takes of a host's memory: worker/attention and worker/kv take it
// and assert the sizes, planning counts with it.
#pragma once
#include <algorithm>
#include <cstdint>

#include "model/heads/attention_sums.h"

namespace longhaul {

// --- Scores, where the attention of all queries is summed up ---

// Of a text, queries that are scored at a time: as many as there are floats for the scores of a
// layer's query heads with all keys, but a few at least.
inline constexpr std::int64_t kFewestQueriesScored = 8;
inline constexpr std::int64_t kMostScores = 1 << 24;
constexpr std::int64_t queries_scored_at_once(std::int64_t n_heads, std::int64_t n_keys) {
  return std::clamp(kMostScores / (n_heads * n_keys), kFewestQueriesScored, kMostQueriesScored);
}
// Scores of each query head that are there at once, at most, while a text of n_keys tokens is read.
constexpr std::int64_t most_scores_of_head(std::int64_t n_heads, std::int64_t n_keys) {
  return std::min(kMostQueriesScored * n_keys,
                  std::max(kMostScores / n_heads, kFewestQueriesScored * n_keys));
}

// --- Tokens that are chosen, while a layer's heads choose one after the other ---

// Of each token: that of the head at hand in lists by position and by rank, in those of what it
// keeps, and of where that lies and goes to.
inline constexpr std::int64_t kListedTokenBytes = 192;
// Of each token and head until the layer has chosen: its number; of each that chooses, a score and
// what is chosen; a candidate beside other heads', and its copy while they are sorted.
inline constexpr std::int64_t kTokenNumberBytes = 8;
inline constexpr std::int64_t kChosenTokenBytes = 16;
inline constexpr std::int64_t kSharedTokenBytes = 2 * 24;

// --- Pages that are chosen ---

// Of each sequence's list: a page, a block, and a tile of bounds.
inline constexpr std::int64_t kListedPageBytes = 32;
inline constexpr std::int64_t kPagedBlockBytes = 16;
inline constexpr std::int64_t kListedTileBytes = 24;
// A page that gets keys, of a head at a time: in two lists, which may have grown to twice as much,
// and in the sequence's old list while that grows.
inline constexpr std::int64_t kNewPageBytes = 2 * (56 + 48) + kListedPageBytes;
// Beside a tile's bounds: who has it.
inline constexpr std::int64_t kTileOwnerBytes = 128;
// While a query head chooses: itself; a page that may be read, as it travels; one that is read, in
// the list of the pages and of what attention reads, each of which may have grown to twice as much.
inline constexpr std::int64_t kPageQuestionBytes = 512;
inline constexpr std::int64_t kCandidatePageBytes = 24;
inline constexpr std::int64_t kReadPageBytes = 2 * 2 * 32 + 8;

}  // namespace longhaul
