#include "model/chat/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/chat/fail.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

constexpr std::size_t kMaxItems = 1'000'000;

[[noreturn]] void wrong_kinds(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined() && value->undefined_reason().what)
      fail(*value->undefined_reason().what);
  }
  fail(fmt::format("\"{}\" does not take {} and {}", op, a.type_name(), b.type_name()));
}

std::int64_t checked(bool overflow, std::int64_t value) {
  if (overflow) fail("an integer is out of range");
  return value;
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (i > 64 && (base < -1 || base > 1)) fail("an integer is out of range");
    if (i > 64) return base == -1 && exponent % 2 != 0 ? -1 : base * base;
    const std::int64_t factor = result;
    checked(__builtin_mul_overflow(factor, base, &result), 0);
  }
  return result;
}

Value integers(std::string_view op, std::int64_t a, std::int64_t b) {
  if (op == "+" || op == "-" || op == "*") {
    std::int64_t result = 0;
    const bool overflow = op == "+"   ? __builtin_add_overflow(a, b, &result)
                          : op == "-" ? __builtin_sub_overflow(a, b, &result)
                                      : __builtin_mul_overflow(a, b, &result);
    return checked(overflow, result);
  }
  if (op == "//") return floor_divided(a, b);
  if (op == "%") {
    if (b == 0) fail("division by zero");
    return b == -1 ? std::int64_t{0} : a - floor_divided(a, b) * b;
  }
  if (op == "**" && b >= 0) return power(a, b);
  if (op == "**") return std::pow(static_cast<double>(a), static_cast<double>(b));
  if (b == 0) fail("division by zero");
  return static_cast<double>(a) / static_cast<double>(b);
}

Value floats(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) fail("division by zero");
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value joined(const List& a, const List& b) {
  if (a.items.size() + b.items.size() > kMaxItems) fail("a list grows too long");
  List both{.items = a.items, .is_tuple = a.is_tuple};
  both.items.insert(both.items.end(), b.items.begin(), b.items.end());
  return both;
}

Value repeated(const Value& value, std::int64_t times, std::size_t max_text_bytes) {
  const auto n = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (const Text* text = value.text()) {
    if (!text->empty() && n > max_text_bytes / text->size()) fail("a text grows too long");
    Text all;
    for (std::size_t i = 0; i < n && !text->empty(); ++i) all.append(*text);
    return all;
  }
  const List& list = *value.list();
  if (!list.items.empty() && n > kMaxItems / list.items.size()) fail("a list grows too long");
  List all{.items = {}, .is_tuple = list.is_tuple};
  for (std::size_t i = 0; i < n && !list.items.empty(); ++i)
    all.items.insert(all.items.end(), list.items.begin(), list.items.end());
  return all;
}

bool is_sequence(const Value& value) { return value.text() != nullptr || value.list() != nullptr; }

}  // namespace

Value arithmetic(std::string_view op, const Value& a, const Value& b, std::size_t max_text_bytes) {
  if (a.integer() && b.integer()) return integers(op, *a.integer(), *b.integer());
  if (a.is_number() && b.is_number()) return floats(op, *a.number(), *b.number());
  if (op == "+" && a.text() != nullptr && b.text() != nullptr) {
    if (a.text()->size() + b.text()->size() > max_text_bytes) fail("a text grows too long");
    Text both = *a.text();
    both.append(*b.text());
    return both;
  }
  if (op == "+" && a.list() != nullptr && b.list() != nullptr &&
      a.list()->is_tuple == b.list()->is_tuple)
    return joined(*a.list(), *b.list());
  if (op == "*" && is_sequence(a) && b.integer()) return repeated(a, *b.integer(), max_text_bytes);
  if (op == "*" && a.integer() && is_sequence(b)) return repeated(b, *a.integer(), max_text_bytes);
  if (op == "%" && a.text() != nullptr) return percent_format(*a.text(), b);
  wrong_kinds(op, a, b);
}

Value negative(const Value& value) {
  if (const auto whole = value.integer()) return integers("-", 0, *whole);
  if (const auto number = value.number()) return -*number;
  fail(fmt::format("\"-\" does not take {}", value.type_name()));
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr)
      fail(fmt::format("\"in\" a text takes a text, not {}", item.type_name()));
    return text->bytes().find(item.text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item) != nullptr;
  if (const List* list = container.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& other) { return equal(other, item); });
  }
  if (container.is_undefined()) return false;
  fail(fmt::format("\"in\" does not take {}", container.type_name()));
}

std::shared_ptr<const List> items_of(const Value& value) {
  if (value.list() != nullptr) return value.shared_list();
  auto list = std::make_shared<List>();
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->entries) list->items.push_back(key);
  } else if (const Text* text = value.text()) {
    for (std::size_t at = 0; at < text->size();) {
      if (list->items.size() == kMaxItems) fail("a loop over more than a million characters");
      const std::size_t length = character_at(text->bytes(), at).length;
      list->items.emplace_back(text->part(at, at + length));
      at += length;
    }
  } else if (!value.is_undefined()) {
    fail(fmt::format("a {} has no items", value.type_name()));
  }
  return list;
}

std::int64_t length_of(const Value& value) {
  std::size_t n = 0;
  if (const Text* text = value.text()) {
    n = count_code_points(text->bytes());
  } else if (const List* list = value.list()) {
    n = list->items.size();
  } else if (const Dict* dict = value.dict()) {
    n = dict->entries.size();
  } else if (!value.is_undefined()) {
    fail(fmt::format("a {} has no length", value.type_name()));
  }
  return static_cast<std::int64_t>(n);
}

Value slice_of(const Value& value, std::optional<std::int64_t> begin,
               std::optional<std::int64_t> end, std::optional<std::int64_t> step) {
  if (!is_sequence(value)) fail(fmt::format("a {} cannot be sliced", value.type_name()));
  const std::int64_t n = length_of(value);
  const std::int64_t by = step.value_or(1);
  if (by == 0) fail("a slice's step is zero");
  const auto place = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
    if (!at) return otherwise;
    const std::int64_t from_start = *at < 0 ? std::max(*at, -n - 1) + n : *at;
    return by > 0 ? std::clamp<std::int64_t>(from_start, 0, n)
                  : std::clamp<std::int64_t>(from_start, -1, n - 1);
  };
  const std::int64_t from = place(begin, by > 0 ? 0 : n - 1);
  const std::int64_t to = place(end, by > 0 ? n : -1);
  if (const Text* text = value.text(); text != nullptr && by == 1) {
    const std::string& bytes = text->bytes();
    const std::size_t first = byte_of_character(bytes, static_cast<std::size_t>(from));
    const std::size_t last = byte_of_character(bytes, static_cast<std::size_t>(std::max(from, to)));
    return text->part(first, last);
  }
  const std::shared_ptr<const List> items = items_of(value);
  List picked{.items = {}, .is_tuple = items->is_tuple};
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    picked.items.push_back(items->items[static_cast<std::size_t>(i)]);
    if (by > 0 ? i > n - by : i + by < 0) break;
  }
  if (value.text() == nullptr) return picked;
  Text all;
  for (const Value& character : picked.items) all.append(*character.text());
  return all;
}

}  // namespace longhaul::chat
