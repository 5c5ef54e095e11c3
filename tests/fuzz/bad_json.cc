#include "tests/fuzz/bad_json.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

namespace longhaul::test {
namespace {

Json* member(Json& json, std::string_view key) {
  if (auto* object = std::get_if<JsonObject>(&json.value())) {
    for (auto& [name, value] : *object) {
      if (name == key) return &value;
    }
  }
  if (auto* list = std::get_if<JsonArray>(&json.value())) {
    const auto index = static_cast<std::size_t>(std::stoul(std::string(key)));
    if (index < list->size()) return &(*list)[index];
  }
  return nullptr;
}

Json* find_path(Json& json, std::string_view path) {
  Json* at = &json;
  while (at != nullptr && !path.empty()) {
    const auto slash = path.find('/');
    at = member(*at, path.substr(0, slash));
    path = slash == std::string_view::npos ? "" : path.substr(slash + 1);
  }
  return at;
}

// The tree without what `path` names; nothing when it is an element of a list or not there.
std::optional<Json> without(const Json& good, std::string_view path) {
  Json copy = good;
  const auto slash = path.rfind('/');
  Json* parent = slash == std::string_view::npos ? &copy : find_path(copy, path.substr(0, slash));
  if (parent == nullptr) return std::nullopt;
  auto* object = std::get_if<JsonObject>(&parent->value());
  if (object == nullptr) return std::nullopt;
  const std::string_view key = path.substr(slash == std::string_view::npos ? 0 : slash + 1);
  const auto n = std::erase_if(*object, [&](const auto& pair) { return pair.first == key; });
  return n == 0 ? std::nullopt : std::optional(copy);
}

struct WrongValue {
  char kind;
  Json value;
};

std::vector<WrongValue> wrong_values(const std::string& kinds) {
  std::vector<WrongValue> values = {
      {'b', Json(true)},
      {'s', Json("wrong")},
      {'l', Json(JsonArray{Json(JsonArray{})})},
      {'o', Json(JsonObject{{"wrong", Json(JsonObject{})}})},
      {'0', Json(nullptr)},
      {'i', Json(7)},
      {'n', Json(0.5)},
  };
  const auto may_be = [&](char kind) { return kinds.find(kind) != std::string::npos; };
  std::erase_if(values, [&](const WrongValue& wrong) {
    return may_be(wrong.kind) || (wrong.kind == 'i' && may_be('n'));
  });
  if (may_be('i')) {
    for (const double value : {-0x1p53, 1e30, 0x1p62, 1e308}) values.push_back({'!', Json(value)});
    if (!may_be('m')) values.push_back({'!', Json(-1)});
    values.push_back({'!', Json(std::numeric_limits<std::int64_t>::min())});
    values.push_back({'!', Json(std::numeric_limits<std::int64_t>::max())});
  } else if (may_be('n')) {
    for (const double value : {-0.5, -1e308}) values.push_back({'!', Json(value)});
  }
  return values;
}

// Every place where an object begins or a member's value stands, as offsets into `text`.
std::vector<std::size_t> places_after(std::string_view text, char c, std::size_t most) {
  std::vector<std::size_t> places;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size() && places.size() < most; ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && text[i] == c) {
      places.push_back(i + 1);
    }
  }
  return places;
}

std::string inserted(std::string_view text, std::size_t at, std::string_view piece) {
  std::string copy(text);
  return copy.insert(at, piece);
}

void add_deep_nesting(std::string_view good, std::size_t at, std::vector<BadInput>& bad) {
  for (const std::size_t depth : {std::size_t{65}, std::size_t{100'000}}) {
    const std::string lists = std::string(depth, '[') + std::string(depth, ']');
    bad.push_back({.what = fmt::format("{} lists in each other at byte {}", depth, at),
                   .bytes = inserted(good, at, "\"deep\":" + lists + ",")});
    std::string objects;
    for (std::size_t i = 0; i < depth; ++i) objects += "{\"a\":";
    bad.push_back({.what = fmt::format("{} objects begun at byte {}", depth, at),
                   .bytes = inserted(good, at, "\"deep\":" + objects)});
  }
}

}  // namespace

void add_bad_json_text(std::string_view good, std::vector<BadInput>& bad) {
  const std::size_t end = good.find_last_of("]}");  // what follows is white space
  add_truncations(
      good, [&](std::size_t length) { return length > end; }, bad);
  for (const std::size_t at : places_after(good, '{', 6)) {
    add_deep_nesting(good, at, bad);
    bad.push_back({.what = fmt::format("a key twice at byte {}", at),
                   .bytes = inserted(good, at, R"("twice":1,"twice":2,)")});
    bad.push_back(
        {.what = fmt::format("a comma too many at byte {}", at), .bytes = inserted(good, at, ",")});
    bad.push_back(
        {.what = fmt::format("a comment at byte {}", at), .bytes = inserted(good, at, "/* no */")});
    for (const std::string_view broken : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                          "\xe2\x82", "\x01", "\n", "\\ud800", "\\x", "\\u12g4"}) {
      bad.push_back({.what = fmt::format("broken text at byte {}", at),
                     .bytes = inserted(good, at, fmt::format("\"k{}\":1,", broken))});
    }
  }
  for (const std::size_t at : places_after(good, ':', 12)) {
    for (const std::string_view piece :
         {"NaN", "Infinity", "1e999", "-", "+1", "01", ".5", "0x10", "tru", "'", "undefined"}) {
      const std::size_t value_end = good.find_first_of(",}]", at);
      if (value_end == std::string_view::npos) continue;
      std::string copy(good);
      bad.push_back({.what = fmt::format("{} as value at byte {}", piece, at),
                     .bytes = copy.replace(at, value_end - at, piece)});
    }
  }
  for (const std::string_view after : {"x", "{}", ",", "]"}) {
    bad.push_back({.what = "something after the end",
                   .bytes = std::string(good.substr(0, end + 1)) + std::string(after)});
  }
  bad.push_back(
      {.what = "a zero byte after the end", .bytes = std::string(good.substr(0, end + 1)) + '\0'});
}

std::vector<std::pair<std::string, Json>> bad_trees(const Json& good,
                                                    const std::vector<CheckedField>& fields) {
  std::vector<std::pair<std::string, Json>> trees;
  for (const CheckedField& field : fields) {
    Json probe = good;
    if (find_path(probe, field.path) == nullptr) continue;
    for (const WrongValue& wrong : wrong_values(field.kinds)) {
      Json copy = good;
      *find_path(copy, field.path) = wrong.value;
      trees.emplace_back(fmt::format("{} set to {}", field.path, to_text(wrong.value)), copy);
    }
    if (field.kinds.find('0') != std::string::npos) continue;
    if (const auto copy = without(good, field.path)) {
      trees.emplace_back(fmt::format("{} left out", field.path), *copy);
    }
  }
  return trees;
}

void add_bad_json_fields(std::string_view good, const std::vector<CheckedField>& fields,
                         std::vector<BadInput>& bad) {
  for (const auto& [what, tree] : bad_trees(parse_json(good, "a good input"), fields)) {
    bad.push_back({.what = what, .bytes = to_text(tree)});
  }
}

}  // namespace longhaul::test
