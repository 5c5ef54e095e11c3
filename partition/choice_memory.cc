#include "partition/choice_memory.h"

#include "base/bound_tile.h"
#include "model/heads/attention_sums.h"
#include "model/heads/choice_bytes.h"
#include "model/heads/kept_blocks.h"
#include "partition/value_bytes.h"

namespace longhaul {
namespace {

constexpr std::int64_t kExpSumBytes = 16;  // of a query's exponentials (kernels/key_scores.h)

std::int64_t tokens_of_text(const Workload& workload) {
  return workload.document_tokens + workload.tail_tokens;
}

std::int64_t tile_bytes(const ModelSpec& spec) {
  return bound_tile_floats(spec.head_dim) * kFloatBytes;
}

// Of one sequence of this many pages.
std::int64_t page_list_bytes(std::int64_t n_pages) {
  return n_pages * kListedPageBytes + ceil_div(n_pages * kListedTileBytes, kBoundPages);
}

// The heads of a layer that choose tokens.
void add_token_choosers(const HeadTable& heads, LayerId layer, std::int64_t gqa_group,
                        LayerChoice& all) {
  std::int64_t kept_apart = 0;  // of each token, of all heads together
  std::int64_t at_hand = 0;     // of each token, of the head that takes most
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
    const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep);
    if (keep == nullptr) continue;
    at_hand = std::max(at_hand, kListedTokenBytes);
    const auto* last = std::get_if<ObserveLast>(&keep->observe);
    if (std::holds_alternative<ObserveAll>(keep->observe)) all.n_observing += gqa_group;
    if (keep->recover) {
      all.asks_for_classes = true;
      continue;  // by itself, before the others
    }
    // What each token got: on its own rank, as it goes to others, as it comes from all of them, and
    // in the order of positions, which stays; before that, on its own rank, scores.
    const std::int64_t row_bytes = (last == nullptr ? 1 : gqa_group) * kFloatBytes;
    const std::int64_t n_scored = last == nullptr ? 0 : last->n_queries;
    all.n_last = std::max(all.n_last, n_scored);
    at_hand = std::max(at_hand, 3 * kPositionBytes +  // a token's place
                                    row_bytes * std::max<std::int64_t>(n_scored + 1, 4));
    kept_apart += row_bytes + kTokenNumberBytes + keep->n_choosers * kChosenTokenBytes +
                  (keep->select == SelectAmong::kLayerShared ? kSharedTokenBytes : 0);
  }
  all.token_bytes = kept_apart + at_hand;
}

// The heads of a layer whose query heads choose pages: bounds of all pages, and lists of the best
// ones; and, of a head at a time, what new pages hold.
void add_page_choosers(const HeadTable& heads, LayerId layer, const ModelSpec& spec,
                       const Workload& workload, LayerChoice& all) {
  std::int64_t of_queries = 0;
  std::int64_t of_candidates = 0;
  std::int64_t of_pages = 0;
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
    const auto* choose = std::get_if<ReadTopPages>(&heads.at(layer, kv_head).choose);
    if (choose == nullptr) continue;
    const std::int64_t n_pages =
        ceil_div(ceil_div(tokens_of_text(workload), choose->page_tokens), kBoundPages) *
        kBoundPages;
    const std::int64_t n_read = std::min(n_pages, choose->n_pages());
    of_queries += kPageQuestionBytes + n_pages * kFloatBytes + n_read * kReadPageBytes;
    of_candidates += n_read * kCandidatePageBytes;
    of_pages = std::max(of_pages, n_pages * kNewPageBytes);
  }
  const std::int64_t n_rows = workload.decode_rows() * spec.gqa_group();
  all.page_bytes = n_rows * of_queries + of_pages;
  all.candidate_bytes = n_rows * of_candidates;
}

// While attention is summed up: a chunk's queries, on a ring as each rank has them, as they come
// and in order; scores, and their sums on the way to all ranks.
std::int64_t summing_bytes(std::int64_t n_observing, const ModelSpec& spec,
                           const Workload& workload, std::int64_t n_ranks) {
  if (n_observing == 0) return 0;
  const std::int64_t n_copies = n_ranks == 1 ? 1 : 3;
  const std::int64_t row_bytes = spec.n_heads * spec.head_dim * kFloatBytes + kPositionBytes;
  const std::int64_t n_keys = tokens_of_text(workload);
  const std::int64_t n_scored = std::min(kMostQueriesScored, workload.chunk_len);
  const std::int64_t scores =
      std::min(n_scored * n_keys, most_scores_of_head(spec.n_heads, n_keys)) * kFloatBytes;
  const std::int64_t sums = n_scored * (5 + n_ranks) * kExpSumBytes;
  return n_copies * workload.chunk_len * row_bytes + n_observing * (scores + sums) +
         n_keys * kPositionBytes;
}

// Of the document's sequence and each fork of it: the queries that will be asked.
std::int64_t observed_bytes(std::int64_t n_last, const ModelSpec& spec, const Workload& workload) {
  const std::int64_t row_bytes = spec.n_heads * spec.head_dim * kFloatBytes + kPositionBytes;
  return (1 + workload.n_sequences) * n_last * row_bytes;
}

// Sums of a layer's heads that keep a key for what has left their windows, in prefill on a ring
// (worker/ring/ring_compensation.h): so far, those that two slabs begin with, three messages on
// their way and one that came; where homes make them all, those of all slabs.
std::int64_t handed_on_bytes(std::int64_t n_heads, const ModelSpec& spec, const Workload& workload,
                             std::int64_t n_ranks) {
  const bool at_homes = workload.reproducible && n_ranks > 1;
  const std::int64_t n_sums = at_homes ? 1 + 2 * n_ranks : 1 + 2 + 3 + 1;
  return n_heads * n_sums * gone_bytes(spec);
}

}  // namespace

Gathered gathered_of(const HeadPolicy& policy, const Workload& workload) {
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  if (keep == nullptr) return {};
  return {.n_times = keep->when == KeepWhen::kAfterDocument ? 1 : workload.n_sequences,
          .most_blocks = gathered_blocks(policy, workload.block_size, tokens_of_text(workload))};
}

std::int64_t bytes_beside_gathered(const HeadPolicy& policy, const Workload& workload) {
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  if (keep == nullptr) return 0;
  const std::int64_t n_lists = keep->n_choosers > 1 ? 2 : 1;
  return n_lists * workload.block_size * kPositionBytes;
}

std::int64_t bytes_beside_block(const HeadPolicy& policy, const ModelSpec& spec,
                                const Workload& workload) {
  std::int64_t bytes = 0;
  if (const std::int64_t n_sums = sums_of_a_slot(policy); n_sums > 0) {
    const std::int64_t n_copies = sums_in_forks(policy) ? 1 + workload.n_sequences : 1;
    bytes += n_copies * n_sums * room_for_sums(workload.block_size) * kAttentionSumBytes;
  }
  if (const auto* choose = std::get_if<ReadTopPages>(&policy.choose)) {
    const std::int64_t n_pages = workload.block_size / choose->page_tokens;
    bytes += ceil_div(n_pages * (tile_bytes(spec) + kTileOwnerBytes), kBoundPages) +
             (1 + workload.n_sequences) * (page_list_bytes(n_pages) + kPagedBlockBytes);
  }
  return bytes;
}

std::int64_t bytes_beside_head(const HeadPolicy& policy, const ModelSpec& spec,
                               const Workload& workload) {
  std::int64_t bytes = 0;
  // A fork copies its document's last tile, and ends with one of its own.
  if (std::holds_alternative<ReadTopPages>(policy.choose))
    bytes += (1 + 2 * workload.n_sequences) * (tile_bytes(spec) + kTileOwnerBytes);
  if (policy.rest != Rest::kNothing) bytes += (1 + workload.n_sequences) * gone_bytes(spec);
  return bytes;
}

std::int64_t gone_bytes(const ModelSpec& spec) {
  return 2 * spec.head_dim * static_cast<std::int64_t>(sizeof(double));
}

LayerChoice layer_choice(const HeadTable& heads, LayerId layer, const ModelSpec& spec,
                         const Workload& workload) {
  LayerChoice all;
  add_token_choosers(heads, layer, spec.gqa_group(), all);
  add_page_choosers(heads, layer, spec, workload, all);
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads()))
    all.n_rest += heads.at(layer, kv_head).rest != Rest::kNothing ? 1 : 0;
  return all;
}

std::int64_t choice_bytes(std::span<const LayerChoice> layers, const ModelSpec& spec,
                          const Workload& workload, std::int64_t n_ranks) {
  const std::int64_t n_lists = n_ranks == 1 ? 2 : 2 + 2 * n_ranks;  // those of all ranks, too
  LayerChoice most;  // the most of any layer; n_last is that of all layers together
  std::int64_t of_pages = 0;
  for (const LayerChoice& layer : layers) {
    most.n_last += layer.n_last;
    most.n_observing = std::max(most.n_observing, layer.n_observing);
    most.token_bytes = std::max(most.token_bytes, layer.token_bytes);
    most.n_rest = std::max(most.n_rest, layer.n_rest);
    most.asks_for_classes = most.asks_for_classes || layer.asks_for_classes;
    of_pages = std::max(of_pages, layer.page_bytes + n_lists * layer.candidate_bytes);
  }
  const std::int64_t n_tokens = tokens_of_text(workload);
  const bool is_alone = n_ranks == 1 && std::ssize(layers) == spec.n_layers;
  const std::int64_t handed_on =
      is_alone ? 0 : handed_on_bytes(most.n_rest, spec, workload, n_ranks);
  // A byte for each token's kind, which may have grown to twice as much.
  const std::int64_t classes =
      most.asks_for_classes ? 2 * (1 + workload.n_sequences) * n_tokens : 0;
  return std::max({summing_bytes(most.n_observing, spec, workload, n_ranks),
                   n_tokens * most.token_bytes, of_pages}) +
         observed_bytes(most.n_last, spec, workload) + classes + handed_on;
}

}  // namespace longhaul
