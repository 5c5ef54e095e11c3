// What one pass through the model computes: rows of activations, one for each new token, in
// segments that belong to one sequence each. A chunk of a prompt is one segment, a decode batch
// many segments of one row; any mixture takes the same path.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

struct BatchSegment {
  SequenceCache* cache = nullptr;  // must outlive the pass; no two segments share one
  Extent rows;                     // of the batch
  TokenPos first_position{0};      // of rows.begin in the sequence: what the cache holds so far
  std::int64_t n_uncertain = 0;    // up to its first token, of an answer, that may be taken back
};

struct Batch {
  std::span<const std::int32_t> tokens;    // [n_rows]
  std::span<const BatchSegment> segments;  // their rows follow each other and cover [0, n_rows)
  // Rows whose hidden state the caller wants after the model's last layer; all when empty. The
  // others only fill caches, so their queries, attention and feed-forward of that layer are never
  // computed.
  std::optional<Extent> wanted = std::nullopt;
  // Whether these are tokens of a text whose last queries methods ask for (observed_queries.h).
  // Else what follows the first token of a segment may be taken back.
  bool is_prompt = false;
  std::int64_t n_rows() const { return static_cast<std::int64_t>(tokens.size()); }
};

}  // namespace longhaul
