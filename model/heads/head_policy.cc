#include "model/heads/head_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/ids.h"

namespace longhaul {
namespace {

void check(const SeeAll&) {}

void check(const SeeSinkRecent& see) {
  require(see.sink >= 0,
          fmt::format("streaming window: sink is {}, it must not be negative", see.sink));
  require(
      see.recent >= 1,
      fmt::format("streaming window: recent is {}, it must be at least 1 (it counts the query's "
                  "own token)",
                  see.recent));
}

void check(const SeeSinkSlide& see) {
  require(see.sink >= 0,
          fmt::format("sliding cache: sink is {}, it must not be negative", see.sink));
  require(1 <= see.slide && see.slide <= see.capacity - see.sink,
          fmt::format("sliding cache: slides by {} tokens of {} behind a sink of {}", see.slide,
                      see.capacity - see.sink, see.sink));
}

void check(const SeeModelWindow& see) {
  require(see.recent >= 1, fmt::format("a model's window of {} tokens", see.recent));
}

void check(const ReadEveryPage&) {}

void check(const ReadTopPages& choose) {
  require(choose.page_tokens >= 1 && choose.budget_tokens >= choose.page_tokens,
          fmt::format("page choice: a budget of {} tokens in pages of {}", choose.budget_tokens,
                      choose.page_tokens));
}

void check(const KeepSeen&) {}

void check(const KeepBudget& keep) {
  require(keep.n_sink >= 0 && keep.n_recent >= 0 && keep.n_tokens >= 1 &&
              (keep.share > 0 || keep.n_sink + keep.n_recent <= keep.n_tokens),
          fmt::format("cache budget: {} first and {} last tokens of {}", keep.n_sink, keep.n_recent,
                      keep.n_tokens));
  if (const auto* last = std::get_if<ObserveLast>(&keep.observe)) {
    require(last->n_queries >= 1,
            fmt::format("cache budget: scores of the last {} queries", last->n_queries));
  }
  require(0 <= keep.share && keep.share <= 1 && 0 <= keep.head_floor && keep.head_floor <= 1,
          fmt::format("cache budget: a share of {} with a floor of {}; give 0 to 1", keep.share,
                      keep.head_floor));
  if (const auto& recover = keep.recover) {
    const auto is_share = [](double x) { return 0 <= x && x <= 1; };
    require(is_share(recover->threshold) && is_share(recover->frequent) && is_share(recover->local),
            fmt::format("recovered attention: {} of it by shares of {} and {}; give 0 to 1",
                        recover->threshold, recover->frequent, recover->local));
    require(keep.share == 1 && keep.n_recent == 0,
            "recovered attention: it may take all tokens, and recipes say which last ones");
  }
  require(1 <= keep.n_choosers && keep.n_choosers <= kMostChoosers &&
              (keep.n_choosers == 1 || keep.group == GroupScore::kEach),
          fmt::format("cache budget: {} query heads choose; 1 to {} can, each for itself",
                      keep.n_choosers, kMostChoosers));
  require(keep.pool.kernel >= 1 && keep.pool.kernel % 2 == 1,
          fmt::format("cache budget: scores are pooled over {} neighbours; give an odd number",
                      keep.pool.kernel));
}

// Pages are chosen of what a head that sees and keeps everything has.
std::optional<std::string> unsupported_choice(const HeadPolicy& policy) {
  if (!std::holds_alternative<ReadTopPages>(policy.choose)) return std::nullopt;
  if (!std::holds_alternative<SeeAll>(policy.see)) return "pages chosen beside a window";
  if (!std::holds_alternative<KeepSeen>(policy.keep))
    return "pages chosen of tokens that are kept by their scores";
  return std::nullopt;
}

std::optional<std::string> unsupported_recovery(const KeepBudget& keep) {
  if (!std::holds_alternative<ObserveAll>(keep.observe))
    return "recovered attention of some queries alone";
  if (keep.select != SelectAmong::kHead) return "recovered attention of several heads together";
  return std::nullopt;
}

std::optional<std::string> unsupported_budget(const KeepBudget& keep, const See& see) {
  if (!std::holds_alternative<SeeAll>(see)) return "tokens kept by their scores beside a window";
  if (keep.recover) {
    if (const auto part = unsupported_recovery(keep)) return part;
  }
  if (std::holds_alternative<ObserveAll>(keep.observe)) {
    if (keep.pool.kind != PoolKind::kNone) return "pooled scores of all queries";
    if (keep.group != GroupScore::kMean) return "a group's scores of all queries but by their mean";
  }
  if (std::holds_alternative<ObserveKeys>(keep.observe)) {
    if (keep.pool.kind != PoolKind::kNone) return "pooled scores of keys";
    if (keep.group != GroupScore::kMean) return "query heads' scores where keys are compared";
    if (keep.when == KeepWhen::kAfterToken) return "keys compared at every token";
  }
  if (keep.group == GroupScore::kEach && keep.select == SelectAmong::kLayerAlike)
    return "query heads that choose by themselves, and all heads alike";
  if (keep.when == KeepWhen::kAfterChunk) return "tokens chosen anew after every chunk";
  if (keep.when != KeepWhen::kAfterToken) return std::nullopt;
  if (keep.group == GroupScore::kEach)
    return "query heads that choose by themselves at every token";
  if (keep.share > 0 && !keep.recover) return "a share of the tokens kept at every token";
  if (keep.select == SelectAmong::kLayerShared) return "budgets shared by heads at every token";
  return std::nullopt;
}

// Whether one token a step leaves, and keys are met where they stand.
bool leaves_by_one(const See& see) {
  const auto* window = std::get_if<SeeSinkRecent>(&see);
  return window != nullptr && window->positions == SinkPositions::kAbsolute;
}

struct PositionsOf {
  SinkPositions operator()(const SeeSinkRecent& see) const { return see.positions; }
  SinkPositions operator()(const SeeSinkSlide& see) const { return see.positions; }
  SinkPositions operator()(const SeeAll&) const { return SinkPositions::kAbsolute; }
  SinkPositions operator()(const SeeModelWindow&) const { return SinkPositions::kAbsolute; }
};

struct WindowOf {
  KeyWindow operator()(const SeeAll&) const { return {}; }
  KeyWindow operator()(const SeeSinkRecent& see) const { return {see.sink, see.recent}; }
  KeyWindow operator()(const SeeSinkSlide& see) const {
    return {see.sink, see.capacity - see.sink, see.slide};
  }
  KeyWindow operator()(const SeeModelWindow& see) const { return {0, see.recent}; }
};

}  // namespace

std::int64_t KeyWindow::n_keys(std::int64_t n_tokens) const {
  return is_unlimited() ? n_tokens : std::min(n_tokens, sink + recent);
}

std::int64_t KeyWindow::n_gone(std::int64_t position) const {
  if (is_unlimited()) return 0;
  const std::int64_t n_over = position - sink - recent + 1;
  return n_over <= 0 ? 0 : ceil_div(n_over, slide) * slide;
}

std::int64_t KeyWindow::first_recent(std::int64_t position) const {
  if (slide == 1) return position - recent + 1;
  const std::int64_t n = n_gone(position);
  return n == 0 ? 0 : sink + n;
}

void validate(const HeadPolicy& policy) {
  const auto check_any = [](const auto& part) { check(part); };
  std::visit(check_any, policy.see);
  std::visit(check_any, policy.choose);
  std::visit(check_any, policy.keep);
}

KeyWindow window_of(const HeadPolicy& policy) { return std::visit(WindowOf{}, policy.see); }

SinkPositions sink_positions_of(const HeadPolicy& policy) {
  return std::visit(PositionsOf{}, policy.see);
}

HeadKind kind_of(const HeadPolicy& policy) {
  if (std::holds_alternative<SeeAll>(policy.see)) return HeadKind::kRetrieval;
  return std::holds_alternative<SeeModelWindow>(policy.see) ? HeadKind::kModelWindow
                                                            : HeadKind::kStreaming;
}

std::optional<std::string> unsupported_part(const HeadPolicy& policy) {
  if (const auto part = unsupported_choice(policy)) return part;
  if (const auto* keep = std::get_if<KeepBudget>(&policy.keep)) {
    if (const auto part = unsupported_budget(*keep, policy.see)) return part;
  }
  if (policy.write == Write::kMergeIntoOpenSlot &&
      !(policy == HeadPolicy{.write = Write::kMergeIntoOpenSlot}))
    return "tokens merged into the open slot (DMC) beside another method";
  if (policy.rest != Rest::kNothing && !leaves_by_one(policy.see))
    return "a key that stands for dropped ones (RazorAttention) but beside a window at positions "
           "of "
           "the text";
  if (policy.store.k || policy.store.v) return "cache types of its own";
  return std::nullopt;
}

std::optional<std::string> part_of_single_tokens(const HeadPolicy& policy) {
  if (std::holds_alternative<ReadTopPages>(policy.choose)) return "pages chosen for each query";
  if (std::holds_alternative<KeepBudget>(policy.keep)) return "tokens chosen by their scores";
  if (policy.write != Write::kAppend) return "tokens merged into the open slot";
  if (policy.rest != Rest::kNothing) return "a key that stands for dropped ones";
  if (window_of(policy).slide != 1) return "a window that slides by several tokens";
  if (sink_positions_of(policy) == SinkPositions::kInCache)
    return "sinks at positions in the cache";
  return std::nullopt;
}

}  // namespace longhaul
