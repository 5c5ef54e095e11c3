#include "partition/scratch_memory.h"

#include <algorithm>
#include <bit>

#include "base/bound_tile.h"
#include "base/device/gpu_memory.h"
#include "base/device/table_memory.h"
#include "base/fp8_format.h"
#include "model/heads/attention_sums.h"
#include "model/heads/choice_bytes.h"
#include "partition/choice_memory.h"
#include "partition/value_bytes.h"

namespace longhaul {
namespace {

// What a GPU takes to score the keys of a head that chooses by attention (kernels/key_scores.h), a
// head at a time.
struct KeyScoring {
  std::int64_t scratch = 0;      // sums of parts of the keys, or what each key got
  std::int64_t description = 0;  // queries, tiles of keys, what each key has so far
};
KeyScoring key_scoring_bytes(const HeadTable& heads, const ModelSpec& spec,
                             const Workload& workload) {
  const std::int64_t n_tokens = workload.document_tokens + workload.tail_tokens;
  std::int64_t n_queries = 0;
  std::int64_t key_bytes = 0;  // of a key that got something
  std::int64_t sum_bytes = 0;  // of a key that has something
  bool compares_keys = false;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep);
      if (keep == nullptr) continue;
      if (const auto* last = std::get_if<ObserveLast>(&keep->observe)) {
        n_queries = std::max(n_queries, last->n_queries);
        key_bytes = std::max(key_bytes, spec.gqa_group() * kFloatBytes);
      } else if (std::holds_alternative<ObserveKeys>(keep->observe)) {
        key_bytes = std::max(key_bytes, kFloatBytes);
        compares_keys = true;
      } else {
        n_queries = std::max(n_queries, kMostQueriesScored);
        key_bytes = std::max(key_bytes, kAttentionSumBytes);
        sum_bytes = kAttentionSumBytes;
      }
    }
  }
  if (n_queries == 0 && !compares_keys) return {};
  const std::int64_t n_rows = n_queries * spec.gqa_group();
  const std::int64_t n_tiles =
      ceil_div(n_tokens, workload.block_size) * ceil_div(workload.block_size, kKeysOfScoreTile);
  const std::int64_t of_parts =
      (std::min(kMostKeyScoreParts, n_tiles) + 1) * n_rows * kKeyScoreSumBytes;
  // A row's query, the largest and the sum of its scores; a query's position and first key.
  const std::int64_t of_rows = n_rows * ((spec.head_dim + 1) * kFloatBytes + kAttentionSumBytes) +
                               n_queries * 2 * kPositionBytes;
  // The sums of all keys' directions, or where they point.
  const std::int64_t of_directions = compares_keys ? spec.head_dim * kDirectionSumBytes : 0;
  return {
      .scratch = std::max({of_parts, n_tokens * key_bytes, of_directions}),
      .description = of_rows + n_tiles * kKeyScoreTileBytes + n_tokens * sum_bytes + of_directions};
}

// What a GPU takes beside the bounds of pages, where heads choose pages.
struct PagesChosen {
  std::int64_t bounds = 0;  // of a layer's query heads with all pages
  std::int64_t states = 0;  // partial ones of query heads, which attend apart
  // Of a layer, tiles of bounds and pages that are read; pages that get keys, of a head at a time.
  std::int64_t description = 0;
};
PagesChosen page_choice_bytes(const HeadTable& heads, const ModelSpec& spec,
                              const Workload& workload) {
  constexpr std::int64_t kPointerBytes = 8;
  const std::int64_t n_tokens = workload.document_tokens + workload.tail_tokens;
  const std::int64_t n_rows = workload.decode_rows() * spec.n_heads;
  PagesChosen most;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* choose = std::get_if<ReadTopPages>(&heads.at(layer, kv_head).choose);
      if (choose == nullptr) continue;
      const std::int64_t n_pages = ceil_div(n_tokens, choose->page_tokens) + kBoundPages;
      const std::int64_t n_ranges =
          std::min(kMostKeyRanges, 1 + choose->n_pages() * workload.block_size / kMinKeysOfRange);
      const std::int64_t of_row = kAttentionItemBytes + kPositionBytes + kAttentionSplitBytes +
                                  n_ranges * (kAttentionTaskBytes + kAttentionMemberBytes) +
                                  choose->n_pages() * kBlockRefBytes;
      const std::int64_t of_group =
          kPageGroupBytes + ceil_div(n_pages, kBoundPages) * kPointerBytes;
      most.bounds = std::max(most.bounds, n_rows * n_pages * kFloatBytes);
      most.states = std::max(most.states,
                             n_rows * n_ranges * kRowsOfRange * (spec.head_dim + 2) * kFloatBytes);
      most.description =
          std::max(most.description, n_rows * of_row + n_rows / spec.gqa_group() * of_group +
                                         n_pages * kWidenedPageBytes);
    }
  }
  return most;
}

// Of heads whose query heads choose apart, which of these see each token that stays, in pieces of
// powers of two (worker/kv/seen_slots.h).
std::int64_t seen_slot_bytes(const HeadTable& heads, const Workload& workload) {
  std::int64_t bytes = 0;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const HeadPolicy& policy = heads.at(layer, kv_head);
      const auto* keep = std::get_if<KeepBudget>(&policy.keep);
      if (keep == nullptr || keep->n_choosers == 1) continue;
      const Gathered gathered = gathered_of(policy, workload);
      const auto n_slots = static_cast<std::uint64_t>(
          std::max(gathered.most_blocks * workload.block_size, kFewestTableEntries));
      bytes +=
          gathered.n_times * static_cast<std::int64_t>(std::bit_ceil(n_slots)) * kTableEntryBytes;
    }
  }
  return bytes;
}

// Descriptions of what leaves the windows of a layer's heads that keep a key for it: sums of keys
// and values of each sequence, positions of a chunk's queries, blocks of what leaves in it.
std::int64_t leaving_bytes(const HeadTable& heads, const ModelSpec& spec,
                           const Workload& workload) {
  if (!heads.leaves_rest()) return 0;
  const std::int64_t of_sequences =
      (1 + workload.decode_rows()) *
      (kCompensateItemBytes + gone_bytes(spec) + kPositionBytes + 2 * kBlockRefBytes);
  const std::int64_t of_chunk =
      workload.chunk_len * kPositionBytes +
      (ceil_div(workload.chunk_len, workload.block_size) + 1) * kBlockRefBytes;
  return spec.n_kv_heads * (of_sequences + of_chunk);
}

// Descriptions of attention to open blocks, of all heads of a layer: an item for the queries of
// each block, which meet that block, and their tiles.
std::int64_t open_attention_bytes(const ModelSpec& spec, const Workload& workload) {
  if (!workload.kv(spec).has_open_blocks()) return 0;
  const std::int64_t n_rows = std::max(workload.chunk_len, workload.decode_rows());
  const std::int64_t n_items =
      std::max(ceil_div(workload.chunk_len, workload.block_size) + 1, workload.decode_rows());
  const std::int64_t n_tiles = ceil_div(n_rows * spec.gqa_group(), kRowsOfPlainTile) + n_items;
  return spec.n_kv_heads *
         (n_items * (kAttentionItemBytes + kBlockRefBytes) + n_rows * kPositionBytes +
          n_tiles * (kAttentionTaskBytes + kAttentionMemberBytes));
}

// What a GPU takes where heads merge tokens, beside these.
struct TokensMerged {
  std::int64_t pieces = 0;   // what pieces of powers of two have more; those that others replace
  std::int64_t scratch = 0;  // a chunk's keys and values as they were projected
  // Of tokens that stay in a chunk, on a ring of what goes to their homes; of the newest ones of
  // sequences that answer, and of those that were there before.
  std::int64_t description = 0;
};
TokensMerged merging_bytes(const ModelSpec& spec, const Workload& workload) {
  if (!spec.token_merging) return {};
  constexpr std::int64_t kRowNumberBytes = 4;
  constexpr std::int64_t kCopiesOfRow = 2 * 3;  // keys, values and weights
  const std::int64_t n_rows = std::max(workload.chunk_len, workload.decode_rows());
  const std::int64_t n_entries =
      std::max(ceil_div(raw_tokens_bytes(spec), kTableEntryBytes), kFewestTableEntries);
  const std::int64_t piece =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n_entries))) *
      kTableEntryBytes;
  const std::int64_t n_sequences = workload.n_sequences + 1;
  return {.pieces = n_sequences * (spec.n_layers * (piece - raw_tokens_bytes(spec)) + piece),
          .scratch = 2 * n_rows * spec.n_kv_heads * spec.head_dim * kFloatBytes,
          .description = spec.n_kv_heads *
                         std::max(workload.chunk_len * (kRowNumberBytes + 2 * kCopyRowsBytes),
                                  workload.decode_rows() * kCopiesOfRow * kCopyRowsBytes)};
}

// What operators with results of many sizes ask for.
struct OperatorBytes {
  KeyScoring scoring;
  PagesChosen pages;
  TokensMerged merged;
};
OperatorBytes operator_bytes(const HeadTable& heads, const ModelSpec& spec,
                             const Workload& workload) {
  return {key_scoring_bytes(heads, spec, workload), page_choice_bytes(heads, spec, workload),
          merging_bytes(spec, workload)};
}

// What describes work, on its way to a GPU: as much there as on the host. Memory that grows takes
// more than it must.
std::int64_t upload_bytes(const OperatorBytes& of, const HeadTable& heads, const ModelSpec& spec,
                          const Workload& workload) {
  const std::int64_t n_blocks =
      workload.document_blocks() + workload.n_sequences * workload.tail_blocks();
  const std::int64_t description = n_blocks * spec.n_kv_heads * kBlockRefBytes;
  const std::int64_t largest =
      std::max({description + of.pages.description, of.scoring.description,
                leaving_bytes(heads, spec, workload), of.merged.description,
                open_attention_bytes(spec, workload)});
  const std::int64_t stage = std::max(kUploadStageBytes, largest / 2 * 3);
  const std::int64_t step = std::min(kMostStepBytes, 2 * spec.n_layers * stage);
  return kNUploadStages * stage + step;
}

}  // namespace

std::int64_t raw_row_bytes(const ModelSpec& spec) {
  return spec.n_kv_heads * (2 * spec.head_dim + 1) * kFloatBytes;
}

std::int64_t raw_tokens_bytes(const ModelSpec& spec) {
  return 2 * (spec.token_merging->window - 1) * raw_row_bytes(spec);
}

std::int64_t pinned_bytes(const RankSpec& rank, const ModelSpec& spec, const HeadTable& heads,
                          const Workload& workload) {
  if (rank.device == Device::kCpu) return 0;
  const OperatorBytes of = operator_bytes(heads, spec, workload);
  const std::int64_t results = std::max({kUploadStageBytes, of.scoring.scratch, of.pages.bounds,
                                         of.merged.scratch, leaving_bytes(heads, spec, workload)}) /
                               4 * 5;
  return upload_bytes(of, heads, spec, workload) + results;
}

std::int64_t scratch_bytes(const RankSpec& rank, const ModelSpec& spec, const HeadTable& heads,
                           const Workload& workload) {
  if (rank.device == Device::kCpu) return 0;
  const std::int64_t n_tokens = workload.document_tokens + workload.tail_tokens;
  const std::int64_t state_bytes = (spec.head_dim + 2) * kFloatBytes;
  // Prefill on Hopper: keys and values as bf16, and ranges of two slabs' tiles. Other chips need
  // less.
  const std::int64_t keys =
      std::min(kConvertedKeysBytes, n_tokens * spec.n_kv_heads * spec.head_dim * 4);
  const std::int64_t tiles =
      spec.n_kv_heads * ceil_div(workload.chunk_len * spec.gqa_group(), kRowsOfPrefillRange);
  const std::int64_t n_prefill_ranges =
      std::min(2 * kMostPrefillRanges, tiles * (n_tokens / kMinKeysOfPrefillRange));
  const std::int64_t prefill = keys + n_prefill_ranges * kRowsOfPrefillRange * state_bytes;
  const std::int64_t n_ranges = std::min(kMostKeyRanges, ceil_div(n_tokens, kMinKeysOfRange));
  const std::int64_t decode =
      workload.decode_rows() * spec.n_kv_heads * n_ranges * kRowsOfRange * state_bytes;
  // Memory that grows takes more than it must, and stays.
  const OperatorBytes of = operator_bytes(heads, spec, workload);
  const std::int64_t scratch = std::max({prefill, decode + of.pages.states, of.scoring.scratch,
                                         of.pages.bounds, of.merged.scratch}) /
                               4 * 5;
  // Tables of blocks are powers of two, and what they grew out of stays for others.
  const std::int64_t entries =
      4 * workload.document_blocks() +
      workload.n_sequences * std::max(kFewestTableEntries, 4 * workload.tail_blocks());
  const std::int64_t tables = spec.n_layers * spec.n_kv_heads * entries * kTableEntryBytes +
                              seen_slot_bytes(heads, workload) + of.merged.pieces;
  // Beside weights of fp8 those of products by blocks, and scales in rows of four.
  std::int64_t products = kProductWorkspaceBytes;
  if (workload.weights(spec) == DType::kF8E4m3) {
    const std::int64_t outputs =
        (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim + 2 * spec.d_ff + 2 * spec.d_model;
    products += kProductWorkspaceBytes +
                spec.n_layers * (ceil_div(outputs, Fp8Layout{}.block_out) + 7) * 3 * kFloatBytes;
  }
  return scratch + upload_bytes(of, heads, spec, workload) + tables + products;
}

}  // namespace longhaul
