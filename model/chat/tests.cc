// The tests of Jinja: what stands after "is".
#include <fmt/format.h>

#include <algorithm>

#include "model/chat/evaluator.h"
#include "model/chat/fail.h"
#include "model/chat/known_names.h"
#include "model/chat/operators.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

struct NamedTest {
  std::string_view name;
  bool (*passes)(const Value&);
};
using V = const Value&;

bool is_odd(V v) {
  if (!v.integer()) fail("odd and even need an integer");
  return *v.integer() % 2 != 0;
}

bool has_case(V v, Case want) {
  return v.text() != nullptr && has_only_case(v.text()->bytes(), want);
}

constexpr NamedTest kSimple[] = {
    {"boolean", [](V v) { return v.is_bool(); }},
    {"callable", [](V v) { return v.function() != nullptr; }},
    {"defined", [](V v) { return !v.is_undefined(); }},
    {"even", [](V v) { return !is_odd(v); }},
    {"false", [](V v) { return v.is_bool() && !v.truth(); }},
    {"float", [](V v) { return v.is_float(); }},
    {"integer", [](V v) { return v.is_integer(); }},
    {"iterable",
     [](V v) {
       return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr ||
              v.is_undefined() || v.loop() != nullptr;
     }},
    {"lower", [](V v) { return has_case(v, Case::kLower); }},
    {"mapping", [](V v) { return v.dict() != nullptr; }},
    {"none", [](V v) { return v.is_none(); }},
    {"number", [](V v) { return v.is_number(); }},
    {"odd", is_odd},
    {"sequence",
     [](V v) {
       return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
     }},
    {"string", [](V v) { return v.text() != nullptr; }},
    {"true", [](V v) { return v.is_bool() && v.truth(); }},
    {"undefined", [](V v) { return v.is_undefined(); }},
    {"upper", [](V v) { return has_case(v, Case::kUpper); }}};

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The same object, which for plain data is the same kind and value.
bool same_as(V a, V b) { return a.variant().index() == b.variant().index() && equal(a, b); }

}  // namespace

bool Evaluator::apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  for (const NamedTest& test : kSimple) {
    if (test.name == name) return test.passes(value);
  }
  if (!is_known_test(name)) fail(fmt::format("the test \"{}\" is not supported", name));
  if (arguments.positional.empty()) fail(fmt::format("the test \"{}\" needs a value", name));
  const Value& other = arguments.positional[0];
  if (is_any(name, {"eq", "==", "=", "equalto"})) return equal(value, other);
  if (is_any(name, {"ne", "!="})) return !equal(value, other);
  if (is_any(name, {"lt", "<", "lessthan"})) return less(value, other);
  if (is_any(name, {"gt", ">", "greaterthan"})) return less(other, value);
  if (is_any(name, {"le", "<="})) return !less(other, value);
  if (is_any(name, {"ge", ">="})) return !less(value, other);
  if (name == "in") return contains(other, value);
  if (name == "sameas") return same_as(value, other);
  return equal(arithmetic("%", value, other, 0), std::int64_t{0});  // divisibleby
}

}  // namespace longhaul::chat
