// What one KV head keeps and what its queries see: the one word for it. Head roles in saved files,
// masks of kernels, blocks of caches, bytes in plans and budgets are derived from it and said
// nowhere else. Plain values; nothing here knows a cache.
//
// A policy has six parts. An engine that cannot do what a part asks refuses it by name
// (require_runnable), so no field is ever passed over in silence.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/kv_type.h"
#include "model/head_profile.h"
#include "model/model_spec.h"

namespace longhaul {

// The key at position j is in the window of the query at position p if and only if
//   j <= p  and  (j < sink  or  p - j < recent)
// so `recent` counts the query's own token. The default is plain causal attention. With slide > 1
// the window does not move by one token a step: `slide` tokens leave it at once, behind the sink,
// when it is full, so that a query sees between sink + recent - slide + 1 and sink + recent keys:
//
//   sink 1, recent 4, slide 3:   query  4: 0 1 2 3 4    5: 0 4 5    6: 0 4 5 6    7: 0 4 5 6 7
//                                       8: 0 7 8
struct KeyWindow {
  static constexpr std::int64_t kUnlimited = ModelSpec::kNoWindow;
  std::int64_t sink = 0;
  std::int64_t recent = kUnlimited;
  std::int64_t slide = 1;

  bool is_unlimited() const { return recent == kUnlimited; }
  // How many tokens behind the sink have left the window when the query at `position` is asked.
  std::int64_t n_gone(std::int64_t position) const;
  // The query sees the keys from this position to its own, besides sinks; not more than 0 where
  // that is all.
  std::int64_t first_recent(std::int64_t position) const;
  // Of a sequence of n_tokens tokens: how many its last query sees.
  std::int64_t n_keys(std::int64_t n_tokens) const;
  bool operator==(const KeyWindow&) const = default;
};

// --- see: which keys a query sees ---

// All before it, and itself: retrieval heads, dense models.
struct SeeAll {
  bool operator==(const SeeAll&) const = default;
};
// An exact window, however the text was cut into chunks: streaming heads. With absolute positions
// it is DuoAttention's training mask (Xiao et al. 2024, arXiv 2410.10819); with positions in the
// cache StreamingLLM (Xiao et al. 2023, arXiv 2309.17453), whose published code counts `recent`
// without the query's own token: one less than here.
struct SeeSinkRecent {
  std::int64_t sink = 0;    // tokens
  std::int64_t recent = 1;  // tokens, the query's own included
  SinkPositions positions = SinkPositions::kAbsolute;
  bool operator==(const SeeSinkRecent&) const = default;
};
// A cache of `capacity` tokens which, when it is full, forgets the `slide` oldest ones behind the
// sink at once (KeyWindow). With slide 1 it is SeeSinkRecent with recent = capacity - sink.
struct SeeSinkSlide {
  std::int64_t sink = 0;
  std::int64_t capacity = 1;  // tokens, the query's own included
  std::int64_t slide = 1;
  SinkPositions positions = SinkPositions::kInCache;
  bool operator==(const SeeSinkSlide&) const = default;
};
// The window that the model itself has in this layer (Mistral, Qwen2): no method changes it.
struct SeeModelWindow {
  std::int64_t recent = 1;
  bool operator==(const SeeModelWindow&) const = default;
};
using See = std::variant<SeeAll, SeeSinkRecent, SeeSinkSlide, SeeModelWindow>;

// --- choose: which pages of what is kept a query reads ---

struct ReadEveryPage {
  bool operator==(const ReadEveryPage&) const = default;
};
// Of a text's prompt a query reads every page. A later one reads, each of its heads by itself, the
// last page and those with the highest bounds of q.k, of equal ones the earlier: budget_tokens /
// page_tokens in all (Quest, Tang et al. 2024, arXiv 2406.10774, section 3). Page i holds the
// tokens from i * page_tokens on.
struct ReadTopPages {
  std::int64_t page_tokens = 16;
  std::int64_t budget_tokens = 1024;

  std::int64_t n_pages() const { return budget_tokens / page_tokens; }
  bool operator==(const ReadTopPages&) const = default;
};
using Choose = std::variant<ReadEveryPage, ReadTopPages>;

// --- keep: which tokens stay ---

// What some later query can see: everything, or the window's.
struct KeepSeen {
  bool operator==(const KeepSeen&) const = default;
};
enum class KeepWhen : std::uint8_t {
  kAfterDocument,  // once, when the shared document is whole
  kAfterPrompt,    // once, when the prompt is whole
  kAfterChunk,     // of a document or prompt, each time; no method has it yet
  kAfterToken,     // first when the prompt is whole, then at each step of the answer, after its
                   // query was asked
};
// Whose attention a token's score sums up.
struct ObserveLast {  // of the last n queries
  std::int64_t n_queries = 1;
  bool operator==(const ObserveLast&) const = default;
};
struct ObserveAll {  // of all queries so far
  bool operator==(const ObserveAll&) const = default;
};
// Of none: how little a token's key points where the head's keys point on the whole (KeyDiff, Park
// et al. 2025, arXiv 2504.15364, section 3; kernels/key_directions.h).
struct ObserveKeys {
  bool operator==(const ObserveKeys&) const = default;
};
using Observe = std::variant<ObserveLast, ObserveAll, ObserveKeys>;
// Scores are smoothed over `kernel` neighbours; an odd number.
enum class PoolKind : std::uint8_t { kNone, kAverage, kMax };
struct Pool {
  PoolKind kind = PoolKind::kNone;
  std::int64_t kernel = 1;
  bool operator==(const Pool&) const = default;
};
// How the scores of the query heads that share the KV head become one. With kEach they do not: each
// query head chooses by itself and sees what it chose; the cache holds what any of them did.
enum class GroupScore : std::uint8_t { kMean, kMax, kEach };
inline constexpr std::int64_t kMostChoosers = 64;
// Whose tokens compete: a head's own; those of a layer, all heads keeping the same; those of a
// layer, heads sharing the budget (Ada-KV).
enum class SelectAmong : std::uint8_t { kHead, kLayerAlike, kLayerShared };
// As many tokens as it takes, instead of a budget (FastGen, Ge et al. 2023, arXiv 2310.01801,
// section 4; model/heads/recipe.h): when a text is whole, a head keeps by the first of a few
// recipes that recovers enough of its attention.
struct Recover {
  double threshold = 0.95;  // of the attention of the text's queries
  double frequent = 0.3;    // the most attended tokens, as a share of the text's
  double local = 0.3;       // the last tokens, as a share of those up to a query
  bool operator==(const Recover&) const = default;
};
// Of each that chooses the n_tokens with the highest scores, equal ones by the lower position; the
// first n_sink and the last n_recent are among them whatever their scores (SnapKV, H2O, TOVA,
// PyramidKV, Ada-KV).
struct KeepBudget {
  std::int64_t n_tokens = 1;
  double share = 0;  // of the tokens that there are, rounded down, instead of n_tokens; 0: those
  // Of kLayerShared: each head keeps at least this share of the budget by its own best scores.
  double head_floor = 0;
  std::int64_t n_sink = 0;
  std::int64_t n_recent = 0;
  KeepWhen when = KeepWhen::kAfterPrompt;
  Observe observe = ObserveLast{};
  Pool pool = {};
  GroupScore group = GroupScore::kMean;
  std::int64_t n_choosers = 1;  // of kEach: the query heads of the group, at most kMostChoosers
  SelectAmong select = SelectAmong::kHead;
  std::optional<Recover> recover = std::nullopt;  // then share is 1: it may take all
  bool operator==(const KeepBudget&) const = default;
};
using Keep = std::variant<KeepSeen, KeepBudget>;

// --- write, rest, store ---

// How a new token enters: into a slot of its own, or merged into the open one (DMC, Nawrot et al.
// 2024, arXiv 2403.09636).
enum class Write : std::uint8_t { kAppend, kMergeIntoOpenSlot };
// What tokens leave behind that go: nothing, or one key and value that stands for their mean, with
// their number as its weight (RazorAttention, Tang et al. 2024, arXiv 2407.15891).
enum class Rest : std::uint8_t { kNothing, kCompensationKey };
// Types of this head's keys and values; none: those of the run.
struct Store {
  std::optional<KvType> k = std::nullopt;
  std::optional<KvType> v = std::nullopt;
  bool operator==(const Store&) const = default;
};

struct HeadPolicy {
  See see = SeeAll{};
  Choose choose = ReadEveryPage{};
  Keep keep = KeepSeen{};
  Write write = Write::kAppend;
  Rest rest = Rest::kNothing;
  Store store = {};
  bool operator==(const HeadPolicy&) const = default;
};

// Whether the head's tokens are chosen when a document is whole.
inline bool is_cut_after_document(const HeadPolicy& policy) {
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  return keep != nullptr && keep->when == KeepWhen::kAfterDocument;
}

// Throws kInvalidArgument naming the field that makes no sense.
void validate(const HeadPolicy& policy);

// The window of `see`.
KeyWindow window_of(const HeadPolicy& policy);

// At which positions queries meet sinks that are no longer among their recent tokens.
SinkPositions sink_positions_of(const HeadPolicy& policy);

// What kind of head it is, for people and files. Numbered because files hold them.
enum class HeadKind : std::uint8_t {
  kRetrieval = 0,    // sees every token
  kStreaming = 1,    // sees sinks and recent tokens, because a method says so
  kModelWindow = 2,  // sees recent tokens, because the model says so
};
HeadKind kind_of(const HeadPolicy& policy);

// The part that the engine cannot do yet, in words: "pages chosen for each query (Quest)"; nullopt
// when it can do all.
std::optional<std::string> unsupported_part(const HeadPolicy& policy);

// The part that moves, merges or reads tokens one by one, or meets them at other positions: what
// caches that quantise groups of tokens cannot do (require_storable), and reproducible results but
// for keys of dropped tokens (require_reproducible). In words, or nullopt.
std::optional<std::string> part_of_single_tokens(const HeadPolicy& policy);

}  // namespace longhaul
