#include "model/chat/methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/chat/evaluator.h"
#include "model/chat/fail.h"
#include "model/chat/operators.h"
#include "model/chat/string_methods.h"

namespace longhaul::chat {
namespace {

constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <std::size_t N>
bool contains_name(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value refusal(std::string_view kind, std::string_view name) {
  return Function{std::string(name),
                  [what = fmt::format("{}.{}()", kind, name)](const Arguments&) -> Value {
                    fail(fmt::format("{} changes its value, which templates may not do", what));
                  }};
}

List pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, item] : dict.entries)
    pairs.items.emplace_back(List{.items = {key, item}, .is_tuple = true});
  return pairs;
}

List values_of(const Dict& dict) {
  List values;
  for (const auto& [key, item] : dict.entries) values.items.push_back(item);
  return values;
}

std::optional<Value> dict_method(const Value& self, std::string_view name) {
  if (contains_name(kDictChanges, name)) return refusal("dict", name);
  const auto method = [&](auto call) -> Value {
    return Function{std::string(name),
                    [self, call](const Arguments& given) { return call(*self.dict(), given); }};
  };
  if (name == "items")
    return method([](const Dict& d, const Arguments&) { return Value(pairs_of(d)); });
  if (name == "values")
    return method([](const Dict& d, const Arguments&) { return Value(values_of(d)); });
  if (name == "keys")
    return method([self](const Dict&, const Arguments&) { return Value(*items_of(self)); });
  if (name == "copy") return method([](const Dict& d, const Arguments&) { return Value(d); });
  if (name == "get") {
    return method([](const Dict& d, const Arguments& given) -> Value {
      const Value* key = given.find(0, "key");
      if (key == nullptr) fail("dict.get() needs a key");
      if (const Value* found = d.find(*key)) return *found;
      const Value* otherwise = given.find(1, "default");
      return otherwise != nullptr ? *otherwise : Value(None{});
    });
  }
  return std::nullopt;
}

std::optional<Value> list_method(const Value& self, std::string_view name) {
  if (!self.list()->is_tuple && contains_name(kListChanges, name)) return refusal("list", name);
  if (name != "index" && name != "count" && name != "copy") return std::nullopt;
  return Function{std::string(name),
                  [self, name = std::string(name)](const Arguments& given) -> Value {
                    if (name == "copy") return self;
                    const Value* wanted = given.find(0, "value");
                    if (wanted == nullptr) fail(fmt::format("list.{}() needs a value", name));
                    std::int64_t n = 0;
                    std::int64_t at = 0;
                    for (const Value& item : self.list()->items) {
                      if (equal(item, *wanted) && ++n == 1 && name == "index") return at;
                      ++at;
                    }
                    if (name == "index") fail("list.index(): the value is not in the list");
                    return n;
                  }};
}

std::optional<Value> loop_method(const Value& self, std::string_view name) {
  if (name == "cycle") {
    return Function{"cycle", [self](const Arguments& given) -> Value {
                      if (given.positional.empty()) fail("loop.cycle() needs values");
                      return given.positional[self.loop()->index % given.positional.size()];
                    }};
  }
  if (name == "changed") {
    return Function{"changed", [self](const Arguments& given) -> Value {
                      for (const Value& value : given.positional) depth_inside(value);
                      std::vector<Value>& last = self.loop()->last_changed;
                      const bool same = !last.empty() && std::equal(last.begin() + 1, last.end(),
                                                                    given.positional.begin(),
                                                                    given.positional.end(), equal);
                      last = given.positional;
                      last.insert(last.begin(), Value(true));  // so that "none" is told from "()"
                      return !same;
                    }};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> method_of(const Value& value, std::string_view name, Evaluator& evaluator) {
  if (value.dict() != nullptr) return dict_method(value, name);
  if (value.list() != nullptr) return list_method(value, name);
  if (value.loop() != nullptr) return loop_method(value, name);
  if (value.text() != nullptr && is_string_method(name)) {
    return Function{std::string(name),
                    [value, name = std::string(name), &evaluator](const Arguments& given) {
                      evaluator.count_steps(value.text()->size() / 256);
                      Value result = call_string_method(*value.text(), name, given);
                      if (const Text* text = result.text()) evaluator.check_size(text->size());
                      if (const List* list = result.list())
                        evaluator.count_steps(list->items.size());
                      return result;
                    }};
  }
  return std::nullopt;
}

std::optional<Value> loop_variable(const Loop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return std::int64_t{1};
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") {
    return index == 0 ? Value::undefined("there is no previous item")
                      : loop.items->items[loop.index - 1];
  }
  if (name == "nextitem") {
    return index + 1 == length ? Value::undefined("there is no next item")
                               : loop.items->items[loop.index + 1];
  }
  return std::nullopt;
}

}  // namespace longhaul::chat
