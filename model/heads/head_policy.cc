#include "model/heads/head_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

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
              keep.n_sink + keep.n_recent <= keep.n_tokens,
          fmt::format("cache budget: {} first and {} last tokens of {}", keep.n_sink, keep.n_recent,
                      keep.n_tokens));
  if (const auto* last = std::get_if<ObserveLast>(&keep.observe)) {
    require(last->n_queries >= 1,
            fmt::format("cache budget: scores of the last {} queries", last->n_queries));
  }
  require(keep.pool.kernel >= 1 && keep.pool.kernel % 2 == 1,
          fmt::format("cache budget: scores are pooled over {} neighbours; give an odd number",
                      keep.pool.kernel));
}

struct WindowOf {
  KeyWindow operator()(const SeeAll&) const { return {}; }
  KeyWindow operator()(const SeeSinkRecent& see) const { return {see.sink, see.recent}; }
  KeyWindow operator()(const SeeSinkSlide& see) const {
    return {see.sink, see.capacity - see.sink};
  }
  KeyWindow operator()(const SeeModelWindow& see) const { return {0, see.recent}; }
};

}  // namespace

std::int64_t KeyWindow::n_keys(std::int64_t n_tokens) const {
  return is_unlimited() ? n_tokens : std::min(n_tokens, sink + recent);
}

void validate(const HeadPolicy& policy) {
  const auto check_any = [](const auto& part) { check(part); };
  std::visit(check_any, policy.see);
  std::visit(check_any, policy.choose);
  std::visit(check_any, policy.keep);
}

KeyWindow window_of(const HeadPolicy& policy) { return std::visit(WindowOf{}, policy.see); }

SinkPositions sink_positions_of(const HeadPolicy& policy) {
  const auto* see = std::get_if<SeeSinkRecent>(&policy.see);
  return see == nullptr ? SinkPositions::kAbsolute : see->positions;
}

HeadKind kind_of(const HeadPolicy& policy) {
  if (std::holds_alternative<SeeAll>(policy.see)) return HeadKind::kRetrieval;
  return std::holds_alternative<SeeModelWindow>(policy.see) ? HeadKind::kModelWindow
                                                            : HeadKind::kStreaming;
}

std::optional<std::string> unsupported_part(const HeadPolicy& policy) {
  if (std::holds_alternative<SeeSinkSlide>(policy.see)) return "a cache that slides in steps";
  if (!std::holds_alternative<ReadEveryPage>(policy.choose)) {
    return "pages chosen for each query (Quest)";
  }
  if (!std::holds_alternative<KeepSeen>(policy.keep)) return "tokens kept by their scores";
  if (policy.write != Write::kAppend) return "tokens merged into the open slot (DMC)";
  if (policy.rest != Rest::kNothing) return "a key that stands for dropped ones (RazorAttention)";
  if (policy.store.k || policy.store.v) return "cache types of its own";
  return std::nullopt;
}

}  // namespace longhaul
