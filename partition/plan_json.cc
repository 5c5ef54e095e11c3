#include "partition/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "model/heads/heads_json.h"
#include "partition/fnv1a.h"

namespace longhaul {
namespace {

constexpr std::string_view kFormat = "longhaul-plan";
constexpr std::int64_t kVersion = 2;  // 1 held roles without the model's windows and positions
constexpr std::int64_t kMaxDimension = std::int64_t{1} << 32;

// --- writing ---

JsonArray extent_json(Extent extent) { return {Json(extent.begin), Json(extent.end)}; }

template <typename List, typename Convert>
Json list_json(const List& list, const Convert& convert) {
  JsonArray array;
  array.reserve(list.size());
  for (const auto& element : list) array.emplace_back(convert(element));
  return Json(std::move(array));
}

Json home_json(const Home& home) {
  return list_json(home.shares, [](const HomeShare& share) {
    return JsonArray{Json(share.rank.value), Json(share.weight)};
  });
}

Json stage_json(const Stage& stage) {
  const auto number = [](std::int64_t value) { return value; };
  return Json(JsonObject{
      {"layers", Json(extent_json(stage.layers))},
      {"ring", list_json(stage.ring, [](Rank rank) { return rank.value; })},
      {"token_share", list_json(stage.token_share, number)},
      {"home", list_json(stage.home,
                         [](const IndexedVector<KvHeadId, Home>& heads) {
                           return std::get<JsonArray>(list_json(heads, home_json).value());
                         })},
      {"ffn_slice", list_json(stage.ffn_slice, extent_json)},
      {"vocab_slice", list_json(stage.vocab_slice, extent_json)},
  });
}

JsonObject without_hash(const Plan& plan) {
  JsonObject object{{"format", Json(std::string(kFormat))},
                    {"version", Json(kVersion)},
                    {"model", Json(plan.model)},
                    {"kv", Json(JsonObject{{"k_type", Json(std::string(name_of(plan.kv.k_type)))},
                                           {"v_type", Json(std::string(name_of(plan.kv.v_type)))},
                                           {"block_size", Json(plan.kv.block_size)},
                                           {"head_dim", Json(plan.kv.head_dim)}})},
                    {"chunk_len", Json(plan.chunk_len)},
                    {"heads", to_json(plan.heads)},
                    {"replicas", list_json(plan.replicas, [](const Replica& replica) {
                       return JsonObject{{"stages", list_json(replica.stages, stage_json)}};
                     })}};
  if (plan.reproducible) object.insert(object.end(), {"reproducible", Json(true)});
  return object;
}

// --- reading ---

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

template <typename Read>
auto read_list(const JsonField& field, const Read& read) {
  std::vector<decltype(read(field))> list;
  const std::size_t n = field.size();
  list.reserve(n);
  for (std::size_t i = 0; i < n; ++i) list.push_back(read(field.at(i)));
  return list;
}

template <typename Index, typename Read>
auto read_indexed(const JsonField& field, const Read& read) {
  return IndexedVector<Index, decltype(read(field))>(read_list(field, read));
}

Rank read_rank(const JsonField& field) { return {field.as_integer(0, kMaxDimension)}; }

std::pair<std::int64_t, std::int64_t> read_pair(const JsonField& field) {
  if (field.size() != 2) field.fail("expected a list of two integers");
  return {field.at(std::size_t{0}).as_integer(0, kMaxDimension),
          field.at(std::size_t{1}).as_integer(0, kMaxDimension)};
}

Extent read_extent(const JsonField& field) {
  const auto [begin, end] = read_pair(field);
  if (begin > end) field.fail(fmt::format("[{}, {}) runs backwards", begin, end));
  return {begin, end};
}

Home read_home(const JsonField& field) {
  return {read_list(field, [](const JsonField& share) {
    const auto [rank, weight] = read_pair(share);
    return HomeShare{{rank}, weight};
  })};
}

Stage read_stage(const JsonField& field) {
  allow(field, {"layers", "ring", "token_share", "home", "ffn_slice", "vocab_slice"});
  Stage stage;
  stage.layers = read_extent(field.at("layers"));
  stage.ring = read_indexed<RingPos>(field.at("ring"), read_rank);
  stage.token_share = read_indexed<RingPos>(field.at("token_share"), [](const JsonField& share) {
    return share.as_integer(0, Stage::kTokenShareTotal);
  });
  stage.home = read_list(field.at("home"), [](const JsonField& layer) {
    return read_indexed<KvHeadId>(layer, read_home);
  });
  stage.ffn_slice = read_indexed<RingPos>(field.at("ffn_slice"), read_extent);
  stage.vocab_slice = read_indexed<RingPos>(field.at("vocab_slice"), read_extent);
  return stage;
}

Replica read_replica(const JsonField& field) {
  allow(field, {"stages"});
  return {read_list(field.at("stages"), read_stage)};
}

KvType read_kv_type(const JsonField& field) {
  const auto type = kv_type_from(field.as_string());
  if (!type) field.fail(fmt::format("\"{}\" is none of f32, bf16, int8, int4", field.as_string()));
  return *type;
}

KvFormat read_kv(const JsonField& field) {
  allow(field, {"k_type", "v_type", "block_size", "head_dim"});
  return {.k_type = read_kv_type(field.at("k_type")),
          .v_type = read_kv_type(field.at("v_type")),
          .block_size = field.at("block_size").as_integer(1, 1 << 16),
          .head_dim = field.at("head_dim").as_integer(1, 1 << 16)};
}

}  // namespace

std::string plan_hash(const Plan& plan) { return fnv1a_hex(to_text(Json(without_hash(plan)))); }

Json plan_to_json(const Plan& plan) {
  JsonObject object = without_hash(plan);
  std::string hash = fnv1a_hex(to_text(Json(object)));
  object.insert(object.begin() + 2, {"hash", Json(std::move(hash))});
  return Json(std::move(object));
}

Plan plan_from_json(const Json& json, std::string_view source) {
  const JsonField root(json, std::string(source));
  if (root.at("format").as_string() != kFormat) {
    root.at("format").fail(fmt::format("expected \"{}\"", kFormat));
  }
  const std::int64_t version = root.at("version").as_integer(1, kMaxDimension);
  if (version != kVersion) {
    root.at("version").fail(
        fmt::format("{} is of another version of Longhaul, which reads {}; make the plan again",
                    version, kVersion));
  }
  allow(root, {"format", "version", "hash", "model", "kv", "chunk_len", "heads", "replicas",
               "reproducible"});
  Plan plan;
  plan.model = root.at("model").as_string();
  plan.kv = read_kv(root.at("kv"));
  plan.chunk_len = root.at("chunk_len").as_integer(1, kMaxDimension);
  plan.heads = heads_from_json(root.at("heads"));
  plan.replicas = read_list(root.at("replicas"), read_replica);
  if (const auto field = root.find("reproducible")) plan.reproducible = field->as_bool();
  const std::string hash = plan_hash(plan);
  if (root.at("hash").as_string() != hash) {
    root.at("hash").fail(fmt::format(
        "is \"{}\", but the plan's is \"{}\": the file was changed after it was written",
        root.at("hash").as_string(), hash));
  }
  return plan;
}

}  // namespace longhaul
