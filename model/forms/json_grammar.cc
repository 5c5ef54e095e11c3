#include "model/forms/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "model/forms/automaton.h"
#include "model/forms/code_points.h"
#include "model/forms/regex.h"

namespace longhaul::forms {
namespace {

constexpr std::int32_t kMaxBlanks = 32;
constexpr std::int32_t kMaxGrammarStates = 20'000;

constexpr std::string_view kInteger = "-?(?:0|[1-9][0-9]{0,17})";
constexpr std::string_view kNumber =
    "-?(?:0|[1-9][0-9]{0,17})(?:\\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?";
// Escapes of a character as JSON allows them, in pairs where it needs two.
constexpr std::string_view kEscape =
    "\\\\(?:[\"\\\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|"
    "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))";

ExpressionId utf8_regex(Expressions& expressions, std::string_view pattern) {
  return parse_regex(expressions, pattern, Spelling::kUtf8, RegexMatch::kWhole);
}

}  // namespace

JsonGrammar::JsonGrammar(Expressions& expressions) : expressions_(expressions) {
  ByteSet blanks;
  blanks.set(' ').set('\t');
  const ExpressionId indent = expressions_.repeat(expressions_.bytes(blanks), 0, kMaxBlanks);
  blank_ = expressions_.either({kEmpty, literal(" "), expressions_.concat(literal("\n"), indent)});
  comma_ = expressions_.concat(literal(","), blank_);
}

ExpressionId JsonGrammar::join(std::initializer_list<ExpressionId> parts) {
  return expressions_.sequence(std::span(parts.begin(), parts.size()));
}

ExpressionId JsonGrammar::string_character() {
  const CodePointSet plain = CodePointSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.complement();
  return expressions_.either(
      {one_of(expressions_, plain, Spelling::kUtf8), utf8_regex(expressions_, kEscape)});
}

ExpressionId JsonGrammar::string(const JsonLength& length) {
  return string_of(expressions_.repeat(string_character(), length.min, length.max));
}

ExpressionId JsonGrammar::string_of(ExpressionId content) {
  return expressions_.sealed(join({literal("\""), content, literal("\"")}));
}

ExpressionId JsonGrammar::key(std::string_view text) {
  return literal(fmt::format("\"{}\"", spelled(text, Spelling::kJsonString)));
}

ExpressionId JsonGrammar::key_other_than(const std::vector<std::string>& keys) {
  const auto to_own_machine = [&](const auto& make) {
    auto own = std::make_unique<Expressions>(std::size_t{kMaxGrammarStates} * 16);
    const ExpressionId start = make(*own);
    Automaton automaton(std::move(own));
    return to_machine(automaton, start, kMaxGrammarStates);
  };
  const Machine any = to_own_machine([](Expressions& own) {
    return JsonGrammar(own).string_of(
        own.repeat(one_of(own, CodePointSet::all(), Spelling::kJsonString), 0, Expression::kNoMax));
  });
  const Machine those = to_own_machine([&](Expressions& own) {
    std::vector<ExpressionId> ways;
    for (const std::string& text : keys) ways.push_back(JsonGrammar(own).key(text));
    return own.either(std::move(ways));
  });
  return expressions_.sealed(expressions_.machine(difference(any, those, kMaxGrammarStates)));
}

ExpressionId JsonGrammar::integer() { return utf8_regex(expressions_, kInteger); }
ExpressionId JsonGrammar::number() { return utf8_regex(expressions_, kNumber); }

ExpressionId JsonGrammar::constant(const Json& value) {
  if (const auto* list_value = std::get_if<JsonArray>(&value.value())) {
    JsonList elements{.first = {}, .min = static_cast<std::int32_t>(list_value->size())};
    for (const Json& element : *list_value) elements.first.push_back(constant(element));
    return list(elements);
  }
  if (const auto* object_value = std::get_if<JsonObject>(&value.value())) {
    std::vector<JsonMember> members;
    for (const auto& [name, member] : *object_value) {
      members.push_back({.key = key(name), .value = constant(member), .is_required = true});
    }
    return object(members, {});
  }
  return literal(to_text(value));
}

ExpressionId JsonGrammar::any_value() {
  if (!any_value_rule_) {
    any_value_rule_ = expressions_.add_rule();
    expressions_.set_rule(
        *any_value_rule_,
        expressions_.either({string(), number(), literal("true"), literal("false"), literal("null"),
                             any_object(), any_list()}));
  }
  return expressions_.rule(*any_value_rule_);
}

ExpressionId JsonGrammar::any_object() {
  return object({}, {.key = string(), .value = any_value()});
}

ExpressionId JsonGrammar::any_list() { return list({.first = {}, .others = any_value()}); }

// From the last member to the first: what may follow when a member stood before (it needs a comma),
// and when none did.
ExpressionId JsonGrammar::object(const std::vector<JsonMember>& members, const JsonMember& others) {
  const auto text_of = [&](const JsonMember& member) {
    return join({member.key, literal(":"), blank_, member.value});
  };
  const ExpressionId other = text_of(others);
  ExpressionId more =
      expressions_.repeat(expressions_.concat(comma_, other), 0, Expression::kNoMax);
  ExpressionId first = expressions_.either({kEmpty, expressions_.concat(other, more)});
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    const ExpressionId text = text_of(*member);
    const ExpressionId as_first = expressions_.concat(text, more);
    const ExpressionId as_other = join({comma_, text, more});
    first = member->is_required ? as_first : expressions_.either({as_first, first});
    more = member->is_required ? as_other : expressions_.either({as_other, more});
  }
  return join({literal("{"), blank_, first, blank_, literal("}")});
}

ExpressionId JsonGrammar::list(const JsonList& elements) {
  const auto n_first = static_cast<std::int32_t>(elements.first.size());
  const bool is_open = elements.max == Expression::kNoMax;
  const auto at_least = [&](std::int32_t n) { return elements.min > n ? elements.min - n : 0; };
  // What may follow when n elements stood before.
  const auto others_after = [&](std::int32_t n, ExpressionId separator) -> ExpressionId {
    if (!is_open && elements.max < n) return kNothing;
    const std::int32_t max = is_open ? Expression::kNoMax : elements.max - n;
    return expressions_.repeat(expressions_.concat(separator, elements.others), at_least(n), max);
  };
  ExpressionId rest = others_after(std::max(n_first, 1), comma_);
  if (n_first == 0) {
    const ExpressionId some = expressions_.concat(elements.others, rest);
    rest = elements.min == 0 ? expressions_.either({kEmpty, some}) : some;
  }
  for (std::int32_t i = n_first - 1; i >= 0; --i) {
    const ExpressionId element = elements.first[static_cast<std::size_t>(i)];
    ExpressionId here = join({i > 0 ? comma_ : kEmpty, element, rest});
    if (!is_open && elements.max <= i) here = kNothing;
    rest = elements.min <= i ? expressions_.either({kEmpty, here}) : here;
  }
  return join({literal("["), blank_, rest, blank_, literal("]")});
}

}  // namespace longhaul::forms
