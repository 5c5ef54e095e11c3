// The published cache methods that users name, with the parameters that they publish, and the table
// of heads that each is. Where a method differs from its published code, docs/methods.md says so.
// Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <variant>

#include "model/heads/head_table.h"

namespace longhaul {

// Every token stays.
struct DenseMethod {
  bool operator==(const DenseMethod&) const = default;
};

// StreamingLLM (Xiao et al. 2023, arXiv 2309.17453, section 3.2): the first tokens and the last
// ones, at positions in the cache.
struct StreamingMethod {
  std::int64_t sink = 4;
  std::int64_t window = 2048;  // tokens that a query sees, sinks and its own included
  SinkPositions positions = SinkPositions::kInCache;
  bool operator==(const StreamingMethod&) const = default;
};

// A sliding window alone, the paper's baseline: what is behind it is forgotten.
struct WindowMethod {
  std::int64_t window = 2048;  // tokens that a query sees, its own included
  bool operator==(const WindowMethod&) const = default;
};

// A buffer of `cap` tokens which, when it is full, forgets the `slide` oldest ones behind the sinks
// at once: StreamingLLM for endless answers, with one move in `slide` steps.
struct SlideMethod {
  std::int64_t sink = 4;
  std::int64_t cap = 2048;
  std::int64_t slide = 128;
  SinkPositions positions = SinkPositions::kInCache;
  bool operator==(const SlideMethod&) const = default;
};

// RazorAttention (Tang et al. 2024, arXiv 2407.15891, section 3.3) of heads that retrieve nothing:
// the first tokens, the last ones, and one key and value that stand for all between, weighted by
// their number.
struct RazorMethod {
  std::int64_t sink = 4;
  std::int64_t window = 4004;  // tokens that a query sees, sinks and its own included
  bool operator==(const RazorMethod&) const = default;
};

// What methods have in common that keep the tokens with the highest attention from a text's last
// queries. A capacity is that of each query head where these choose by themselves (kEach).
struct ScoredBudget {
  std::int64_t capacity = 2048;  // tokens that a head keeps, those of the window included
  double ratio = 0;              // not 0: the share of the tokens that go, instead of capacity
  std::int64_t window = 32;      // last queries that are observed, and last tokens that stay
  std::int64_t kernel = 5;       // neighbours over which scores are pooled
  PoolKind pool = PoolKind::kAverage;
  GroupScore group = GroupScore::kMean;  // of the query heads of a KV head
  KeepWhen after = KeepWhen::kAfterDocument;
  bool operator==(const ScoredBudget&) const = default;
};

// SnapKV (Li et al. 2024, arXiv 2404.14469, section 4).
struct SnapKvMethod : ScoredBudget {
  bool operator==(const SnapKvMethod&) const = default;
};

// PyramidKV (Cai et al. 2024, arXiv 2406.02069, section 4.2): SnapKV's choice with budgets that
// fall linearly from layer to layer; `capacity` or 1 - ratio is their mean.
struct PyramidKvMethod : ScoredBudget {
  std::int64_t beta = 20;  // the last layer keeps a beta-th of the mean before the window
  bool operator==(const PyramidKvMethod&) const = default;
};

// Ada-KV (Feng et al. 2024, arXiv 2407.11550, section 4): SnapKV's choice with a budget that the
// heads of a layer share.
struct AdaKvMethod : ScoredBudget {
  double floor = 0.2;  // of its even share each head keeps at least so much
  bool operator==(const AdaKvMethod&) const = default;
};

// H2O (Zhang et al. 2023, arXiv 2306.14048, section 4): when the prompt is whole and then at every
// token, the last tokens and those that all queries so far attended to most.
struct H2oMethod {
  std::int64_t capacity = 2048;  // tokens that a head keeps, the last ones included
  std::int64_t recent = 1024;    // last tokens that stay
  bool operator==(const H2oMethod&) const = default;
};

// FastGen (Ge et al. 2023, arXiv 2310.01801, section 4): each head keeps by the cheapest recipe
// that recovers enough of the prompt's attention: special tokens; punctuation; frequent tokens;
// local ones; everything. Found when the text is whole; then it goes on at every token.
struct FastGenMethod {
  double threshold = 0.95;  // of the attention of all of the text's queries
  double frequent = 0.3;    // the most attended tokens, as a share of the text's
  double local = 0.3;       // the last tokens, as a share of those up to a query
  std::int64_t sink = 0;    // first tokens that count as special ones
  KeepWhen after = KeepWhen::kAfterToken;
  bool operator==(const FastGenMethod&) const = default;
};

// TOVA (Oren et al. 2024, arXiv 2401.06104, section 3.2): what the last query attends to, all heads
// of a layer keeping the same tokens; once when the text is whole, or then and at every token.
struct TovaMethod {
  std::int64_t capacity = 2048;
  double ratio = 0;
  KeepWhen after = KeepWhen::kAfterDocument;
  bool operator==(const TovaMethod&) const = default;
};

// KeyDiff (Park et al. 2025, arXiv 2504.15364, section 3) over a whole text at once, as NVIDIA's
// kvpress has it: of each head the keys that point least where all of them point on the whole. No
// query is asked.
struct KeyDiffMethod {
  std::int64_t capacity = 2048;  // tokens that a head keeps
  double ratio = 0;
  std::int64_t sink = 0;    // first tokens that stay whatever their keys are
  std::int64_t recent = 0;  // last tokens that do
  KeepWhen after = KeepWhen::kAfterDocument;
  bool operator==(const KeyDiffMethod&) const = default;
};

// Quest (Tang et al. 2024, arXiv 2406.10774, section 3): everything is kept, and each query of an
// answer reads the pages whose keys may give it the most. The first layers stay dense.
struct QuestMethod {
  std::int64_t budget = 1024;  // tokens that a query reads, those of the last page included
  std::int64_t page = 16;      // tokens; a cache block holds whole pages
  std::int64_t dense = 2;      // first layers that read everything
  bool operator==(const QuestMethod&) const = default;
};

// Dynamic Memory Compression (Nawrot et al. 2024, arXiv 2403.09636), of models that were trained
// for it: they say themselves which tokens merge (ModelSpec::token_merging), and run with nothing
// else.
struct DmcMethod {
  bool operator==(const DmcMethod&) const = default;
};

using CacheMethod = std::variant<DenseMethod, StreamingMethod, WindowMethod, SlideMethod,
                                 SnapKvMethod, PyramidKvMethod, AdaKvMethod, TovaMethod, H2oMethod,
                                 QuestMethod, RazorMethod, FastGenMethod, DmcMethod, KeyDiffMethod>;

// The same method with a cache of so many tokens for each head, whatever it says itself; of dense
// itself, and of fastgen, which finds out how many it takes. A slide is no longer than half of what
// it slides in.
CacheMethod with_budget(CacheMethod method, std::int64_t n_tokens);

// What the method says of a head of a model with so many layers, whose KV heads have so many query
// heads. Throws kInvalidArgument for parameters that make no sense, naming them as the user does.
HeadPolicy policy_of(const CacheMethod& method, LayerId layer, std::int64_t n_layers,
                     std::int64_t gqa_group = 1);

// Which methods keep which heads.
struct HeadMethods {
  std::optional<CacheMethod> all;   // of all heads; needs roles of which none streams
  std::optional<CacheMethod> full;  // of heads that are retrieval heads; the others stream
  std::optional<CacheMethod> streaming = std::nullopt;  // of those others
  bool operator==(const HeadMethods&) const = default;
  bool empty() const { return !all && !full && !streaming; }
};

// Throws kInvalidArgument for pages (quest) that are no whole part of a block of so many tokens:
// what flags alone can say, before a model is opened.
void require_whole_pages(const HeadMethods& methods, std::int64_t block_size);

// The heads of a model with these roles (duo_attention_heads), kept as the methods say. Throws
// kInvalidArgument for both at once, for `all` beside streaming heads, for dmc of a model that was
// not trained for it and anything else of one that was, and what policy_of throws.
HeadTable method_heads(const ModelSpec& spec, const HeadRoles& roles, const HeadMethods& methods);

}  // namespace longhaul
