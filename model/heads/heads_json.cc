#include "model/heads/heads_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/heads/keep_json.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 24;  // of a model
constexpr std::string_view kAbsolute = "absolute";
constexpr std::string_view kInCache = "in the cache";
constexpr std::string_view kMerge = "merge";
constexpr std::string_view kCompensationKey = "compensation key";

Json positions_of(SinkPositions positions) {
  return Json(std::string(positions == SinkPositions::kAbsolute ? kAbsolute : kInCache));
}

struct SeeJson {
  JsonObject operator()(const SeeAll&) const { return {{"see", Json("all")}}; }
  JsonObject operator()(const SeeSinkRecent& see) const {
    return {{"see", Json("sink and recent")},
            {"sink", Json(see.sink)},
            {"recent", Json(see.recent)},
            {"positions", positions_of(see.positions)}};
  }
  JsonObject operator()(const SeeModelWindow& see) const {
    return {{"see", Json("model window")}, {"recent", Json(see.recent)}};
  }
  JsonObject operator()(const SeeSinkSlide& see) const {
    return {{"see", Json("sink and slide")},
            {"sink", Json(see.sink)},
            {"capacity", Json(see.capacity)},
            {"slide", Json(see.slide)},
            {"positions", positions_of(see.positions)}};
  }
};

void allow(const JsonField& field, std::initializer_list<std::string_view> keys) {
  if (!field.json().is_object()) {
    field.fail(fmt::format("expected an object, found {}", field.json().kind_name()));
  }
  for (const auto& [key, value] : std::get<JsonObject>(field.json().value())) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      field.fail(fmt::format("unknown key \"{}\"; known are {}", key, fmt::join(keys, ", ")));
    }
  }
}

SinkPositions read_positions(const JsonField& field) {
  if (field.as_string() == kAbsolute) return SinkPositions::kAbsolute;
  if (field.as_string() != kInCache) {
    field.fail(fmt::format("expected \"{}\" or \"{}\"", kAbsolute, kInCache));
  }
  return SinkPositions::kInCache;
}

SeeSinkSlide read_slide(const JsonField& field) {
  const std::int64_t sink = field.at("sink").as_integer(0, kMaxTokens);
  const std::int64_t capacity = field.at("capacity").as_integer(sink + 1, kMaxTokens);
  return {sink, capacity, field.at("slide").as_integer(1, capacity - sink),
          read_positions(field.at("positions"))};
}

See read_see(const JsonField& field) {
  const std::string& see = field.at("see").as_string();
  if (see == "sink and slide") return read_slide(field);
  if (see == "all") return SeeAll{};
  if (see != "sink and recent" && see != "model window") {
    field.at("see").fail(
        "expected \"all\", \"sink and recent\", \"sink and slide\" or \"model window\"");
  }
  const std::int64_t recent = field.at("recent").as_integer(1, kMaxTokens);
  if (see == "model window") return SeeModelWindow{recent};
  return SeeSinkRecent{field.at("sink").as_integer(0, kMaxTokens), recent,
                       read_positions(field.at("positions"))};
}

ReadTopPages read_choose(const JsonField& field) {
  allow(field, {"page_tokens", "budget_tokens"});
  const std::int64_t page_tokens = field.at("page_tokens").as_integer(1, kMaxTokens);
  return {page_tokens, field.at("budget_tokens").as_integer(page_tokens, kMaxTokens)};
}

HeadPolicy read_policy(const JsonField& field) {
  allow(field, {"see", "sink", "recent", "capacity", "slide", "positions", "keep", "choose", "rest",
                "write"});
  HeadPolicy policy{.see = read_see(field)};
  if (const auto keep = field.find("keep")) policy.keep = keep_from_json(*keep);
  if (const auto choose = field.find("choose")) policy.choose = read_choose(*choose);
  if (const auto rest = field.find("rest")) {
    if (rest->as_string() != kCompensationKey)
      rest->fail(fmt::format("expected \"{}\"", kCompensationKey));
    policy.rest = Rest::kCompensationKey;
  }
  if (const auto write = field.find("write")) {
    if (write->as_string() != kMerge) write->fail(fmt::format("expected \"{}\"", kMerge));
    policy.write = Write::kMergeIntoOpenSlot;
  }
  return policy;
}

}  // namespace

Json to_json(const HeadRoles& roles) {
  JsonArray mask;
  for (const LayerId layer : IdRange<LayerId>(roles.n_layers)) {
    std::string row;
    for (const KvHeadId head : IdRange<KvHeadId>(roles.n_kv_heads))
      row += roles.role(layer, head) == HeadRole::kRetrieval ? '1' : '0';
    mask.emplace_back(std::move(row));
  }
  return JsonObject{{"sink", roles.sink},
                    {"recent", roles.recent},
                    {"n_retrieval", roles.n_retrieval()},
                    {"retrieval_mask", std::move(mask)}};
}

Json to_json(const HeadTable& heads) {
  require_runnable(heads, RunsOn::kOneRank);
  std::vector<HeadPolicy> different;
  JsonArray policies;
  JsonArray layers;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    JsonArray numbers;
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const HeadPolicy& policy = heads.at(layer, kv_head);
      const auto known = std::find(different.begin(), different.end(), policy);
      numbers.emplace_back(static_cast<std::int64_t>(known - different.begin()));
      if (known != different.end()) continue;
      different.push_back(policy);
      JsonObject object = std::visit(SeeJson{}, policy.see);
      if (const auto* keep = std::get_if<KeepBudget>(&policy.keep))
        object.emplace_back("keep", keep_to_json(*keep));
      if (const auto* choose = std::get_if<ReadTopPages>(&policy.choose)) {
        object.emplace_back("choose", JsonObject{{"page_tokens", Json(choose->page_tokens)},
                                                 {"budget_tokens", Json(choose->budget_tokens)}});
      }
      if (policy.rest == Rest::kCompensationKey)
        object.emplace_back("rest", Json(std::string(kCompensationKey)));
      if (policy.write == Write::kMergeIntoOpenSlot)
        object.emplace_back("write", Json(std::string(kMerge)));
      policies.emplace_back(std::move(object));
    }
    layers.emplace_back(std::move(numbers));
  }
  return Json(
      JsonObject{{"policies", Json(std::move(policies))}, {"layers", Json(std::move(layers))}});
}

HeadTable heads_from_json(const JsonField& field) {
  allow(field, {"policies", "layers"});
  std::vector<HeadPolicy> policies;
  const JsonField list = field.at("policies");
  for (std::size_t i = 0; i < list.size(); ++i) policies.push_back(read_policy(list.at(i)));
  const JsonField layers = field.at("layers");
  const auto n_layers = static_cast<std::int64_t>(layers.size());
  const auto n_kv_heads =
      n_layers == 0 ? 0 : static_cast<std::int64_t>(layers.at(std::size_t{0}).size());
  if (n_layers * std::max<std::int64_t>(1, n_kv_heads) > kMaxHeads) layers.fail("too many heads");
  HeadTable heads(n_layers, n_kv_heads);
  for (const LayerId layer : IdRange<LayerId>(n_layers)) {
    const JsonField row = layers.at(static_cast<std::size_t>(layer.value));
    if (static_cast<std::int64_t>(row.size()) != n_kv_heads || n_kv_heads == 0) {
      row.fail("expected as many heads as in the first layer, at least one");
    }
    for (const KvHeadId kv_head : IdRange<KvHeadId>(n_kv_heads)) {
      const std::int64_t number =
          row.at(static_cast<std::size_t>(kv_head.value))
              .as_integer(0, static_cast<std::int64_t>(policies.size()) - 1);
      heads.set(layer, kv_head, policies[static_cast<std::size_t>(number)]);
    }
  }
  return heads;
}

}  // namespace longhaul
