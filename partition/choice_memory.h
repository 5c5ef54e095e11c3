// What methods take of a CPU's memory beside the blocks of caches: lists of what heads keep, bounds
// and lists of pages, sums of attention and of what is gone; and, while heads choose, scores. Each
// is a bound. Pure.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "model/heads/head_table.h"
#include "model/model_spec.h"
#include "partition/workload.h"

namespace longhaul {

// Blocks that chosen tokens are gathered in (gathered_blocks of model/heads/kept_blocks.h): once
// for a document, or for each request beside its document.
struct Gathered {
  std::int64_t n_times = 0;
  std::int64_t most_blocks = 0;  // each time
  // Where no more than so many blocks are there to choose from.
  std::int64_t of(std::int64_t n_blocks) const { return n_times * std::min(n_blocks, most_blocks); }
};
Gathered gathered_of(const HeadPolicy& policy, const Workload& workload);
// Beside each of them: positions, and which query heads see them.
std::int64_t bytes_beside_gathered(const HeadPolicy& policy, const Workload& workload);

// Beside each block that tokens of the document or of its forks lie in: sums of attention with
// those that forks have of their own, bounds of pages (worker/kv/page_bounds.h), lists of pages.
std::int64_t bytes_beside_block(const HeadPolicy& policy, const ModelSpec& spec,
                                const Workload& workload);
// Of a head on each rank that has blocks of it, however many: tiles of bounds that are not full;
// sums of what windows have left behind (kernels/compensate.h).
std::int64_t bytes_beside_head(const HeadPolicy& policy, const ModelSpec& spec,
                               const Workload& workload);
// Of a sequence's head whose window leaves a key for what is gone: sums of keys and of values.
std::int64_t gone_bytes(const ModelSpec& spec);

// What a layer's heads choose with, counted over them.
struct LayerChoice {
  std::int64_t n_last = 0;           // queries that are asked once more
  std::int64_t n_observing = 0;      // query heads whose attention is summed up
  std::int64_t token_bytes = 0;      // of each token, while tokens are chosen
  std::int64_t page_bytes = 0;       // while pages are chosen, beside lists of candidates
  std::int64_t candidate_bytes = 0;  // of each such list
  std::int64_t n_rest = 0;           // heads that keep a key for what has left their windows
  bool asks_for_classes = false;
};
LayerChoice layer_choice(const HeadTable& heads, LayerId layer, const ModelSpec& spec,
                         const Workload& workload);

// What a CPU of a ring of n_ranks takes for these layers while heads choose, whichever keys lie
// there: queries, scores, what each key got, lists, candidates among pages; sums that ranks hand
// on.
std::int64_t choice_bytes(std::span<const LayerChoice> layers, const ModelSpec& spec,
                          const Workload& workload, std::int64_t n_ranks);

}  // namespace longhaul
