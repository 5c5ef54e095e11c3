// Filters of single values: texts, numbers, JSON.
#include "model/chat/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/chat/evaluator.h"
#include "model/chat/fail.h"
#include "model/chat/operators.h"
#include "model/chat/python_text.h"
#include "model/chat/string_methods.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

Text text_argument(const FilterCall& call, std::size_t position, std::string_view name,
                   std::string_view otherwise) {
  return python_str(call.argument(position, name, Value::of_template(otherwise)));
}

Value absolute(const FilterCall& call) {
  if (const auto whole = call.value.integer()) return *whole < 0 ? negative(*whole) : Value(*whole);
  if (const auto number = call.value.number()) return std::fabs(*number);
  fail("abs needs a number");
}

Value defaulted(const FilterCall& call) {
  const bool missing =
      call.value.is_undefined() || (call.flag(1, "boolean", false) && !call.value.truth());
  return missing ? call.argument(0, "default_value", Value(Text())) : call.value;
}

// In Jinja, not Python's title(): words begin after white space, "-" and opening brackets.
Value title(const FilterCall& call) {
  const Text text = call.text();
  const std::string_view bytes = text.bytes();
  Text out;
  bool starts = true;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    const Text one = text.part(at, at + c.length);
    out.append(change_case(one, starts ? Case::kUpper : Case::kLower));
    starts = is_python_space(c.code) ||
             std::u32string_view(U"-({[<").find(c.code) != std::u32string_view::npos;
    at += c.length;
  }
  return out;
}

Value trim(const FilterCall& call) {
  const Text text = call.text();
  const Value chars = call.argument(0, "chars", None{});
  const std::string_view wanted =
      chars.text() != nullptr ? std::string_view(chars.text()->bytes()) : "";
  const ByteRange range =
      stripped(text.bytes(), Side::kBoth, chars.text() != nullptr ? &wanted : nullptr);
  return text.part(range.begin, range.end);
}

Value replace(const FilterCall& call) {
  const Value count = call.argument(2, "count", None{});
  return replaced(call.text(), text_argument(call, 0, "old", "").bytes(),
                  text_argument(call, 1, "new", ""), count.integer());
}

Value indent(const FilterCall& call) {
  const Value width = call.argument(0, "width", std::int64_t{4});
  Text margin = width.text() != nullptr ? *width.text() : Text();
  if (width.integer()) {
    if (*width.integer() > 1000) fail("indent: the width is too large");
    margin = Text(
        std::string(static_cast<std::size_t>(std::max<std::int64_t>(*width.integer(), 0)), ' '),
        Origin::kTemplate);
  }
  const bool blank = call.flag(2, "blank", false);
  Text text = call.text();
  text.append("\n", Origin::kTemplate);
  const Value lines = call_string_method(text, "splitlines", {});
  Text out;
  for (std::size_t i = 0; i < lines.list()->items.size(); ++i) {
    const Text& line = *lines.list()->items[i].text();
    if (i > 0) out.append("\n", Origin::kTemplate);
    if (i > 0 ? blank || !line.empty() : call.flag(1, "first", false)) out.append(margin);
    out.append(line);
  }
  return out;
}

Value escape(const FilterCall& call) {
  const Text text = call.text();
  Text out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t known = std::string_view("&<>'\"").find(text.bytes()[i]);
    constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (known == std::string_view::npos) {
      out.append(text.part(i, i + 1));
    } else {
      out.append(kEscapes[known], Origin::kTemplate);
    }
  }
  return out;
}

std::optional<double> parsed_float(std::string_view text) {
  double value = 0;
  const ByteRange range = stripped(text, Side::kBoth);
  std::string_view inside = text.substr(range.begin, range.end - range.begin);
  if (inside.starts_with('+')) inside.remove_prefix(1);
  const auto [stop, error] = std::from_chars(inside.data(), inside.data() + inside.size(), value);
  if (error != std::errc() || stop != inside.data() + inside.size()) return std::nullopt;
  return value;
}

Value to_float(const FilterCall& call) {
  if (const auto number = call.value.number()) return *number;
  if (const Text* text = call.value.text()) {
    if (const auto number = parsed_float(text->bytes())) return *number;
  }
  return call.argument(0, "default", 0.0);
}

Value to_int(const FilterCall& call) {
  if (call.integer(1, "base", 10) != 10) fail("int: only base 10 is supported");
  if (const auto whole = call.value.integer()) return *whole;
  std::optional<double> number = call.value.number();
  if (const Text* text = call.value.text()) number = parsed_float(text->bytes());
  if (!number || !(std::fabs(*number) < 9e18)) return call.argument(0, "default", std::int64_t{0});
  return static_cast<std::int64_t>(*number);
}

Value round(const FilterCall& call) {
  const auto number = call.value.number();
  if (!number) fail("round needs a number");
  const std::int64_t precision = call.integer(0, "precision", 0);
  const std::string method = text_argument(call, 1, "method", "common").bytes();
  if (precision < 0 || precision > 15) fail("round: the precision must lie between 0 and 15");
  if (method == "common") {
    if (call.value.integer()) return *call.value.integer();
    return std::stod(fmt::format("{:.{}f}", *number, precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method != "ceil" && method != "floor")
    fail("round: the method must be common, ceil or floor");
  return (method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale)) / scale;
}

Value tojson(const FilterCall& call) {
  JsonStyle style;
  style.ascii_only = call.flag(0, "ensure_ascii", false);
  const Value indent = call.argument(1, "indent", None{});
  if (const auto width = indent.integer()) {
    if (*width > 100) fail("tojson: the indent is too large");
    style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(*width, 0)), ' ');
  } else if (indent.text() != nullptr) {
    style.indent = indent.text()->bytes();
  }
  if (style.indent) style.item_separator.assign(1, ',');
  const Value separators = call.argument(2, "separators", None{});
  if (const List* pair = separators.list(); pair != nullptr && pair->items.size() == 2) {
    style.item_separator = python_str(pair->items[0]).bytes();
    style.key_separator = python_str(pair->items[1]).bytes();
  }
  style.sort_keys = call.flag(3, "sort_keys", false);
  return json_dumps(call.value, style);
}

Value format(const FilterCall& call) {
  return percent_format(call.text(), List{.items = call.given.positional, .is_tuple = true});
}

Value center(const FilterCall& call) {
  return padded(call.text(), call.integer(0, "width", 80), 0.5);
}

Value word_count(const FilterCall& call) {
  return length_of(call_string_method(call.text(), "split", {}));
}

constexpr NamedFilter kTextFilters[] = {
    {"abs", absolute},
    {"capitalize",
     [](const FilterCall& c) -> Value { return change_case(c.text(), Case::kCapitalize); }},
    {"center", center},
    {"d", defaulted},
    {"default", defaulted},
    {"e", escape},
    {"escape", escape},
    {"float", to_float},
    {"format", format},
    {"indent", indent},
    {"int", to_int},
    {"lower", [](const FilterCall& c) -> Value { return change_case(c.text(), Case::kLower); }},
    {"replace", replace},
    {"round", round},
    // Nothing is escaped, so nothing needs protection from it.
    {"safe", [](const FilterCall& c) -> Value { return c.text(); }},
    {"string", [](const FilterCall& c) -> Value { return c.text(); }},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", [](const FilterCall& c) -> Value { return change_case(c.text(), Case::kUpper); }},
    {"wordcount", word_count}};

}  // namespace

Value FilterCall::argument(std::size_t position, std::string_view name, Value otherwise) const {
  const Value* found = given.find(position, name);
  return found != nullptr ? *found : otherwise;
}

std::int64_t FilterCall::integer(std::size_t position, std::string_view name,
                                 std::int64_t otherwise) const {
  const Value* found = given.find(position, name);
  if (found == nullptr) return otherwise;
  if (!found->integer()) fail(fmt::format("a filter's {} must be an integer", name));
  return *found->integer();
}

bool FilterCall::flag(std::size_t position, std::string_view name, bool otherwise) const {
  const Value* found = given.find(position, name);
  return found != nullptr ? found->truth() : otherwise;
}

Text FilterCall::text() const { return python_str(value); }

Filter find_filter(std::span<const NamedFilter> filters, std::string_view name) {
  const auto at = std::ranges::find(filters, name, &NamedFilter::name);
  return at == filters.end() ? nullptr : at->filter;
}

Filter find_text_filter(std::string_view name) { return find_filter(kTextFilters, name); }

Value Evaluator::apply_filter(std::string_view name, const Value& value,
                              const Arguments& arguments) {
  const auto weight = static_cast<std::size_t>(weight_of(value));
  count_steps(value.text() != nullptr ? weight : weight / 16);
  Filter filter = find_text_filter(name);
  if (filter == nullptr) filter = find_list_filter(name);
  if (filter == nullptr) fail(fmt::format("the filter \"{}\" is not supported", name));
  Value result = filter({value, arguments, *this});
  if (const Text* text = result.text()) check_size(text->size());
  if (const List* list = result.list()) count_steps(list->items.size());
  return result;
}

}  // namespace longhaul::chat
