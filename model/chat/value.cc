#include "model/chat/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul::chat {
namespace {

template <typename T>
const T* pointed(const Value::Variant& value) {
  const auto* shared = std::get_if<std::shared_ptr<const T>>(&value);
  return shared == nullptr ? nullptr : shared->get();
}

constexpr int kMaxValueDepth = 100;
constexpr std::int64_t kMaxWeight = 4'000'000;  // a gigabyte of text

// Counts `item` as a part of `all`, a list or a dict.
template <typename Whole>
void count(Whole& all, const Value& item) {
  all.depth = std::max(all.depth, 1 + depth_inside(item));
  all.weight += weight_of(item);
  require(all.depth <= kMaxValueDepth, "lists and dicts are nested too deeply");
  require(all.weight <= kMaxWeight,
          "lists and dicts hold too much, since what they share counts each time");
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

}  // namespace

Value::Value(List list) {
  for (const Value& item : list.items) count(list, item);
  value_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
  for (const auto& [key, item] : dict.entries) {
    count(dict, key);
    count(dict, item);
  }
  value_ = std::make_shared<const Dict>(std::move(dict));
}

int depth_inside(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  require(value.space() == nullptr && value.loop() == nullptr && value.function() == nullptr,
          fmt::format("a {} inside another value is not supported", value.type_name()));
  return 0;
}

std::int64_t weight_of(const Value& value) {
  if (const List* list = value.list()) return list->weight;
  if (const Dict* dict = value.dict()) return dict->weight;
  const Text* text = value.text();
  return 1 + (text == nullptr ? 0 : static_cast<std::int64_t>(text->size() / 256));
}

Value Value::undefined(std::string what) {
  Value value;
  value.value_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return value;
}

Value Value::of_template(std::string_view text) {
  return Text(std::string(text), Origin::kTemplate);
}

Value Value::from_json(const Json& json) {
  struct Visitor {
    Value operator()(std::nullptr_t) const { return None{}; }
    Value operator()(bool value) const { return value; }
    Value operator()(std::int64_t value) const { return value; }
    Value operator()(double value) const { return value; }
    Value operator()(const std::string& text) const { return Text(text, Origin::kData); }
    Value operator()(const JsonArray& array) const {
      List list;
      for (const Json& item : array) list.items.push_back(from_json(item));
      return list;
    }
    Value operator()(const JsonObject& object) const {
      Dict dict;
      for (const auto& [key, item] : object)
        dict.entries.emplace_back(Text(key, Origin::kData), from_json(item));
      return dict;
    }
  };
  return std::visit(Visitor{}, json.value());
}

const Text* Value::text() const { return pointed<Text>(value_); }
const List* Value::list() const { return pointed<List>(value_); }
const Dict* Value::dict() const { return pointed<Dict>(value_); }
const Function* Value::function() const { return pointed<Function>(value_); }
const std::shared_ptr<const List>& Value::shared_list() const {
  return std::get<std::shared_ptr<const List>>(value_);
}
Namespace* Value::space() const {
  const auto* shared = std::get_if<std::shared_ptr<Namespace>>(&value_);
  return shared == nullptr ? nullptr : shared->get();
}
Loop* Value::loop() const {
  const auto* shared = std::get_if<std::shared_ptr<Loop>>(&value_);
  return shared == nullptr ? nullptr : shared->get();
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* flag = std::get_if<bool>(&value_)) return *flag ? 1 : 0;
  if (const auto* number = std::get_if<std::int64_t>(&value_)) return *number;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* number = std::get_if<double>(&value_)) return *number;
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

bool Value::truth() const {
  if (const auto value = number()) return *value != 0;
  if (const Text* t = text()) return !t->empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return !d->entries.empty();
  return !is_undefined() && !is_none();
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"undefined", "None", "bool",      "int",  "float",   "str",
                                         "list",      "dict", "namespace", "loop", "function"};
  if (const List* l = list(); l != nullptr && l->is_tuple) return "tuple";
  return kNames[value_.index()];
}

const Value* Dict::find(const Value& key) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return equal(entry.first, key); });
  return at == entries.end() ? nullptr : &at->second;
}

void Dict::set(Value key, Value value) {
  for (auto& entry : entries) {
    if (!equal(entry.first, key)) continue;
    entry.second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
}

const Value* Arguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

bool equal(const Value& a, const Value& b) {
  if (a.integer() && b.integer()) return *a.integer() == *b.integer();
  if (a.is_number() && b.is_number()) return *a.number() == *b.number();
  if (a.variant().index() != b.variant().index()) return false;
  if (const Text* text = a.text()) return text->bytes() == b.text()->bytes();
  if (const List* list = a.list()) {
    return list == b.list() || (list->is_tuple == b.list()->is_tuple &&
                                std::equal(list->items.begin(), list->items.end(),
                                           b.list()->items.begin(), b.list()->items.end(), equal));
  }
  if (const Dict* dict = a.dict()) return dict == b.dict() || equal_dicts(*dict, *b.dict());
  if (a.space() != nullptr) return a.space() == b.space();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  if (a.function() != nullptr) return a.function() == b.function();
  return true;  // none, undefined
}

bool less(const Value& a, const Value& b) {
  if (a.integer() && b.integer()) return *a.integer() < *b.integer();
  if (a.is_number() && b.is_number()) return *a.number() < *b.number();
  // The order of UTF-8's bytes is that of code points.
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes() < b.text()->bytes();
  if (a.list() != nullptr && b.list() != nullptr && a.list()->is_tuple == b.list()->is_tuple) {
    return std::lexicographical_compare(a.list()->items.begin(), a.list()->items.end(),
                                        b.list()->items.begin(), b.list()->items.end(), less);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'<' does not compare {} with {}", a.type_name(), b.type_name()));
}

}  // namespace longhaul::chat
