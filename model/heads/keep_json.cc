#include "model/heads/keep_json.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;

template <typename T, std::size_t kSize>
using Words = std::array<std::pair<T, std::string_view>, kSize>;

constexpr Words<KeepWhen, 4> kTimes = {{{KeepWhen::kAfterDocument, "after the document"},
                                        {KeepWhen::kAfterPrompt, "after the prompt"},
                                        {KeepWhen::kAfterChunk, "after every chunk"},
                                        {KeepWhen::kAfterToken, "after every token"}}};
constexpr Words<PoolKind, 3> kPools = {
    {{PoolKind::kNone, "none"}, {PoolKind::kAverage, "average"}, {PoolKind::kMax, "max"}}};
constexpr Words<GroupScore, 3> kGroups = {
    {{GroupScore::kMean, "mean"}, {GroupScore::kMax, "max"}, {GroupScore::kEach, "each"}}};
constexpr Words<SelectAmong, 3> kSelections = {{{SelectAmong::kHead, "head"},
                                                {SelectAmong::kLayerAlike, "layer, alike"},
                                                {SelectAmong::kLayerShared, "layer, shared"}}};

template <typename T, std::size_t kSize>
Json word_of(T value, const Words<T, kSize>& words) {
  for (const auto& [meaning, word] : words) {
    if (meaning == value) return Json(std::string(word));
  }
  throw Error(ErrorCode::kInternal, "a policy has a value without a word");
}

template <typename T, std::size_t kSize>
T value_of(const JsonField& field, const Words<T, kSize>& words) {
  for (const auto& [meaning, word] : words) {
    if (field.as_string() == word) return meaning;
  }
  std::string known;
  for (const auto& [meaning, word] : words)
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", word);
  field.fail(fmt::format("expected one of {}", known));
}

double share_in(const JsonField& field) {
  const double share = field.as_number();
  if (!(0 <= share && share <= 1)) field.fail("expected a share from 0 to 1");
  return share;
}

// Instead of the number of queries that are observed, since others would read 0 as all.
constexpr std::string_view kKeys = "keys";

Observe observe_in(const JsonField& keep) {
  if (const auto compares = keep.find("compares")) {
    if (compares->as_string() != kKeys) compares->fail(fmt::format("expected \"{}\"", kKeys));
    return ObserveKeys{};
  }
  const std::int64_t n_queries = keep.at("last_queries").as_integer(0, kMost);  // 0: all
  if (n_queries == 0) return ObserveAll{};
  return ObserveLast{n_queries};
}

Recover recover_in(const JsonField& field) {
  return {.threshold = share_in(field.at("threshold")),
          .frequent = share_in(field.at("frequent")),
          .local = share_in(field.at("local"))};
}

}  // namespace

Json keep_to_json(const KeepBudget& keep) {
  const auto* last = std::get_if<ObserveLast>(&keep.observe);
  constexpr std::int64_t kAllQueries = 0;
  JsonObject json{{"tokens", Json(keep.n_tokens)},       {"share", Json(keep.share)},
                  {"head_floor", Json(keep.head_floor)}, {"sink", Json(keep.n_sink)},
                  {"recent", Json(keep.n_recent)},       {"when", word_of(keep.when, kTimes)}};
  if (std::holds_alternative<ObserveKeys>(keep.observe)) {
    json.emplace_back("compares", Json(std::string(kKeys)));
  } else {
    json.emplace_back("last_queries", Json(last == nullptr ? kAllQueries : last->n_queries));
  }
  json.emplace_back("pool", word_of(keep.pool.kind, kPools));
  json.emplace_back("kernel", Json(keep.pool.kernel));
  json.emplace_back("group", word_of(keep.group, kGroups));
  json.emplace_back("among", word_of(keep.select, kSelections));
  if (keep.n_choosers > 1) json.emplace_back("choosers", Json(keep.n_choosers));
  if (keep.recover) {
    json.emplace_back("recover", Json(JsonObject{{"threshold", Json(keep.recover->threshold)},
                                                 {"frequent", Json(keep.recover->frequent)},
                                                 {"local", Json(keep.recover->local)}}));
  }
  return json;
}

KeepBudget keep_from_json(const JsonField& field) {
  KeepBudget keep;
  keep.n_tokens = field.at("tokens").as_integer(1, kMost);
  keep.share = share_in(field.at("share"));
  keep.head_floor = share_in(field.at("head_floor"));
  keep.n_sink = field.at("sink").as_integer(0, kMost);
  keep.n_recent = field.at("recent").as_integer(0, kMost);
  keep.when = value_of(field.at("when"), kTimes);
  keep.observe = observe_in(field);
  keep.pool = {value_of(field.at("pool"), kPools), field.at("kernel").as_integer(1, kMost)};
  keep.group = value_of(field.at("group"), kGroups);
  if (const auto choosers = field.find("choosers"))
    keep.n_choosers = choosers->as_integer(1, kMostChoosers);
  if (const auto recover = field.find("recover")) keep.recover = recover_in(*recover);
  keep.select = value_of(field.at("among"), kSelections);
  return keep;
}

}  // namespace longhaul
