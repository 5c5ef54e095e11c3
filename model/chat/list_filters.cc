// Filters of lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "model/chat/evaluator.h"
#include "model/chat/fail.h"
#include "model/chat/filters.h"
#include "model/chat/operators.h"
#include "model/chat/python_text.h"
#include "model/chat/string_methods.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

std::vector<Value> items(const FilterCall& call) { return items_of(call.value)->items; }

// What is compared when items are sorted: texts without regard to case, unless told otherwise.
Value sort_key(const Value& value, bool case_sensitive) {
  if (value.text() == nullptr || case_sensitive) return value;
  return change_case(*value.text(), Case::kLower);
}

void sort_by(std::vector<Value>& list, bool reverse,
             const std::function<Value(const Value&)>& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : list) keyed.emplace_back(key(item), std::move(item));
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = std::move(keyed[i].second);
}

Value sort(const FilterCall& call) {
  std::vector<Value> sorted = items(call);
  const Value path = call.argument(2, "attribute", None{});
  const bool case_sensitive = call.flag(1, "case_sensitive", false);
  sort_by(sorted, call.flag(0, "reverse", false), [&](const Value& item) {
    return sort_key(path.is_none() ? item : value_at_path(item, path), case_sensitive);
  });
  return List{std::move(sorted)};
}

Value dictsort(const FilterCall& call) {
  if (call.value.dict() == nullptr) fail("dictsort needs a dict");
  const bool case_sensitive = call.flag(0, "case_sensitive", false);
  const bool by_value =
      python_str(call.argument(1, "by", Value::of_template("key"))).bytes() == "value";
  std::vector<Value> pairs;
  for (const auto& [key, value] : call.value.dict()->entries)
    pairs.emplace_back(List{.items = {key, value}, .is_tuple = true});
  sort_by(pairs, call.flag(2, "reverse", false), [&](const Value& pair) {
    return sort_key(pair.list()->items[by_value ? 1 : 0], case_sensitive);
  });
  return List{std::move(pairs)};
}

Value extreme(const FilterCall& call, bool want_max) {
  const std::vector<Value> all = items(call);
  if (all.empty()) return Value::undefined("an empty list has no extreme");
  const Value path = call.argument(1, "attribute", None{});
  const bool case_sensitive = call.flag(0, "case_sensitive", false);
  const auto key = [&](const Value& item) {
    return sort_key(path.is_none() ? item : value_at_path(item, path), case_sensitive);
  };
  const Value* best = &all[0];
  for (const Value& item : all) {
    if (want_max ? less(key(*best), key(item)) : less(key(item), key(*best))) best = &item;
  }
  return *best;
}

Value join(const FilterCall& call) {
  List list{items(call)};
  const Value path = call.argument(1, "attribute", None{});
  if (!path.is_none())
    for (Value& item : list.items) item = value_at_path(item, path);
  return joined_by(python_str(call.argument(0, "d", Value(Text()))), list);
}

Value map(const FilterCall& call) {
  std::vector<Value> mapped = items(call);
  const Value path = call.argument(1, "attribute", None{});
  if (call.given.positional.empty()) {
    if (path.is_none()) fail("map needs a filter or an attribute");
    const Value otherwise = call.argument(2, "default", Value());
    for (Value& item : mapped) {
      item = value_at_path(item, path);
      if (item.is_undefined()) item = otherwise;
    }
    return List{std::move(mapped)};
  }
  const std::string name = python_str(call.given.positional[0]).bytes();
  Arguments rest = call.given;
  rest.positional.erase(rest.positional.begin());
  for (Value& item : mapped) item = call.evaluator.apply_filter(name, item, rest);
  return List{std::move(mapped)};
}

// select, reject, selectattr, rejectattr: whether an item, or its attribute, passes the test.
Value picked(const FilterCall& call, bool by_attribute, bool want) {
  const std::size_t test_place = by_attribute ? 1 : 0;
  if (by_attribute && call.given.positional.empty()) fail("an attribute's name is missing");
  Arguments rest = call.given;
  const auto begin = rest.positional.begin();
  rest.positional.erase(
      begin, begin + static_cast<std::ptrdiff_t>(std::min(rest.positional.size(), test_place + 1)));
  List kept;
  for (const Value& item : items(call)) {
    const Value value = by_attribute ? value_at_path(item, call.given.positional[0]) : item;
    const bool passes =
        call.given.positional.size() <= test_place
            ? value.truth()
            : call.evaluator.apply_test(python_str(call.given.positional[test_place]).bytes(),
                                        value, rest);
    if (passes == want) kept.items.push_back(item);
  }
  return kept;
}

Value unique(const FilterCall& call) {
  const Value path = call.argument(1, "attribute", None{});
  const bool case_sensitive = call.flag(0, "case_sensitive", false);
  List kept;
  std::vector<Value> seen;
  for (const Value& item : items(call)) {
    const Value key = sort_key(path.is_none() ? item : value_at_path(item, path), case_sensitive);
    call.evaluator.count_steps(seen.size() * static_cast<std::size_t>(weight_of(key)));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equal(s, key); }))
      continue;
    seen.push_back(key);
    kept.items.push_back(item);
  }
  return kept;
}

Value batch(const FilterCall& call) {
  const std::int64_t size = call.integer(0, "linecount", 0);
  if (size < 1) fail("batch needs a size from 1");
  const Value fill = call.argument(1, "fill_with", None{});
  List rows;
  List row;
  for (const Value& item : items(call)) {
    if (static_cast<std::int64_t>(row.items.size()) == size)
      rows.items.emplace_back(std::exchange(row, {}));
    row.items.push_back(item);
  }
  while (!row.items.empty() && !fill.is_none() &&
         static_cast<std::int64_t>(row.items.size()) < std::min<std::int64_t>(size, 100'000))
    row.items.push_back(fill);
  if (!row.items.empty()) rows.items.emplace_back(std::move(row));
  return rows;
}

Value sum(const FilterCall& call) {
  const Value path = call.argument(0, "attribute", None{});
  Value total = call.argument(1, "start", std::int64_t{0});
  for (const Value& item : items(call))
    total = arithmetic("+", total, path.is_none() ? item : value_at_path(item, path), 1U << 30);
  return total;
}

Value reverse(const FilterCall& call) {
  if (call.value.text() != nullptr) return slice_of(call.value, std::nullopt, std::nullopt, -1);
  std::vector<Value> reversed = items(call);
  std::reverse(reversed.begin(), reversed.end());
  return List{std::move(reversed)};
}

Value end_item(const FilterCall& call, bool first) {
  const auto all = items_of(call.value);
  if (all->items.empty()) return Value::undefined("an empty list has no first or last item");
  return first ? all->items.front() : all->items.back();
}

Value pairs(const FilterCall& call) {
  if (call.value.is_undefined()) return List{};
  if (call.value.dict() == nullptr) fail("items needs a dict");
  List list;
  for (const auto& [key, value] : call.value.dict()->entries)
    list.items.emplace_back(List{.items = {key, value}, .is_tuple = true});
  return list;
}

using C = const FilterCall&;
constexpr NamedFilter kListFilters[] = {
    {"batch", batch},
    {"count", [](C c) -> Value { return length_of(c.value); }},
    {"dictsort", dictsort},
    {"first", [](C c) -> Value { return end_item(c, true); }},
    {"items", pairs},
    {"join", join},
    {"last", [](C c) -> Value { return end_item(c, false); }},
    {"length", [](C c) -> Value { return length_of(c.value); }},
    {"list", [](C c) -> Value { return List{items(c)}; }},
    {"map", map},
    {"max", [](C c) -> Value { return extreme(c, true); }},
    {"min", [](C c) -> Value { return extreme(c, false); }},
    {"reject", [](C c) -> Value { return picked(c, false, false); }},
    {"rejectattr", [](C c) -> Value { return picked(c, true, false); }},
    {"reverse", reverse},
    {"select", [](C c) -> Value { return picked(c, false, true); }},
    {"selectattr", [](C c) -> Value { return picked(c, true, true); }},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique}};

}  // namespace

Filter find_list_filter(std::string_view name) { return find_filter(kListFilters, name); }

Value value_at_path(const Value& value, const Value& path) {
  if (const auto index = path.integer()) {
    const List* list = value.list();
    const auto at = list != nullptr && *index < 0 ? *index + length_of(value) : *index;
    if (list == nullptr || at < 0 || at >= length_of(value))
      return Value::undefined("no such item");
    return list->items[static_cast<std::size_t>(at)];
  }
  if (path.text() == nullptr) fail("an attribute's name must be a text");
  Value now = value;
  for (std::string_view rest = path.text()->bytes(); !rest.empty();) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::int64_t index = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (error == std::errc() && stop == name.data() + name.size()) {
      now = value_at_path(now, index);
      continue;
    }
    const Value* found =
        now.dict() != nullptr ? now.dict()->find(Value::of_template(name)) : nullptr;
    now = found != nullptr ? Value(*found)
                           : Value::undefined(fmt::format("there is no \"{}\"", name));
  }
  return now;
}

}  // namespace longhaul::chat
