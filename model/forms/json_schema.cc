#include "model/forms/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/forms/automaton.h"
#include "model/forms/json_grammar.h"
#include "model/forms/number_range.h"
#include "model/forms/regex.h"
#include "model/forms/schema_keywords.h"

namespace longhaul::forms {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = std::size_t{1} << 20, .max_depth = 64};
constexpr std::string_view kSource = "JSON schema";
constexpr std::int64_t kMaxCount = 1'000'000'000;
constexpr std::int32_t kMaxSchemaStates = 50'000;

std::vector<JsonField> elements_of(const JsonField& list) {
  std::vector<JsonField> elements;
  for (std::size_t i = 0; i < list.size(); ++i) elements.push_back(list.at(i));
  return elements;
}

class SchemaReader {
 public:
  SchemaReader(Expressions& expressions, const Json& root)
      : expressions_(expressions), grammar_(expressions), root_(root, std::string(kSource)) {}

  ExpressionId read() {
    const ExpressionId result = value(root_);
    // Bodies of rules may name further rules.
    for (; !unread_.empty(); unread_.pop_front()) {
      const auto [rule, target] = unread_.front();
      expressions_.set_rule(rule, value(target));
    }
    return result;
  }

 private:
  using Fields = std::vector<JsonField>;

  ExpressionId value(const JsonField& schema) {
    if (const auto* any = std::get_if<bool>(&schema.json().value())) {
      return *any ? grammar_.any_value() : kNothing;
    }
    if (!schema.json().is_object()) {
      schema.fail(fmt::format("expected a schema (an object, true or false), found {}",
                              schema.json().kind_name()));
    }
    check_keywords(schema, schema.path().empty());
    if (const auto target = schema.find("$ref")) {
      check_stands_alone(schema, {"$ref"});
      return expressions_.rule(rule_of(*target));
    }
    for (const std::string_view name : {"anyOf", "oneOf", "allOf"}) {
      if (const auto list = schema.find(name)) return combination(schema, name, *list);
    }
    // `const` may be null, which find() passes over.
    if (schema.json().find("const") != nullptr) return constant(schema);
    if (const auto list = schema.find("enum")) return one_of_list(schema, *list);
    std::vector<ExpressionId> ways;
    for (const JsonKind kind : kinds_of(schema)) ways.push_back(of_kind(schema, kind));
    return ways.empty() ? grammar_.any_value() : expressions_.either(std::move(ways));
  }

  ExpressionId combination(const JsonField& schema, std::string_view name, const JsonField& list) {
    check_stands_alone(schema, {name});
    const Fields members = elements_of(list);
    if (members.empty()) list.fail("expected at least one schema");
    if (name == "allOf" && members.size() > 1) {
      list.fail("\"allOf\" of several schemas is not supported; merge them into one");
    }
    std::vector<ExpressionId> ways;
    for (const JsonField& member : members) ways.push_back(value(member));
    return expressions_.either(std::move(ways));
  }

  // The kinds that `type` names, else those that the keywords speak of; empty: all.
  std::vector<JsonKind> kinds_of(const JsonField& schema) {
    std::vector<JsonKind> kinds;
    if (const auto type = schema.find("type")) {
      if (!type->json().is_array()) return {kind_named(*type)};
      for (const JsonField& name : elements_of(*type)) kinds.push_back(kind_named(name));
      if (kinds.empty()) type->fail("expected at least one type");
      return kinds;
    }
    for (const JsonKind kind :
         {JsonKind::kObject, JsonKind::kArray, JsonKind::kString, JsonKind::kNumber}) {
      if (speaks_of(schema, kind)) kinds.push_back(kind);
    }
    return kinds;
  }

  bool is_of_type(const JsonField& schema, const Json& json) {
    if (!schema.find("type")) return true;
    const std::vector<JsonKind> kinds = kinds_of(schema);
    return std::any_of(kinds.begin(), kinds.end(),
                       [&](JsonKind kind) { return is_of_kind(json, kind); });
  }

  ExpressionId constant(const JsonField& schema) {
    check_stands_alone(schema, {"const", "type"});
    const Json& json = *schema.json().find("const");
    return is_of_type(schema, json) ? grammar_.constant(json) : kNothing;
  }

  ExpressionId one_of_list(const JsonField& schema, const JsonField& list) {
    check_stands_alone(schema, {"enum", "type"});
    std::vector<ExpressionId> ways;
    for (const JsonField& element : elements_of(list)) {
      if (is_of_type(schema, element.json())) ways.push_back(grammar_.constant(element.json()));
    }
    return expressions_.either(std::move(ways));
  }

  ExpressionId of_kind(const JsonField& schema, JsonKind kind) {
    switch (kind) {
      case JsonKind::kNull:
        return expressions_.literal("null");
      case JsonKind::kBoolean:
        return expressions_.either({expressions_.literal("true"), expressions_.literal("false")});
      case JsonKind::kInteger:
        return number(schema, NumberKind::kInteger);
      case JsonKind::kNumber:
        return number(schema, NumberKind::kNumber);
      case JsonKind::kString:
        return string(schema);
      case JsonKind::kArray:
        return list(schema);
      case JsonKind::kObject:
        return object(schema);
    }
    throw Error(ErrorCode::kInternal, "a JSON value of no kind");
  }

  // --- Numbers ---

  std::optional<NumberBound> bound(const JsonField& schema, std::string_view name,
                                   bool is_excluded) {
    const auto field = schema.find(name);
    if (!field) return std::nullopt;
    if (std::holds_alternative<bool>(field->json().value())) {
      field->fail("expected a number (true and false were draft 4's)");
    }
    field->as_number();
    const std::optional<Decimal> decimal = decimal_of(field->json());
    if (!decimal)
      field->fail("bounds of more than 18 digits before or 17 behind the point are not supported");
    return NumberBound{*decimal, is_excluded};
  }

  ExpressionId number(const JsonField& schema, NumberKind kind) {
    std::optional<NumberBound> low = bound(schema, "minimum", false);
    std::optional<NumberBound> high = bound(schema, "maximum", false);
    const auto low_excluded = bound(schema, "exclusiveMinimum", true);
    const auto high_excluded = bound(schema, "exclusiveMaximum", true);
    const auto only_one = [&](const auto& a, const auto& b, std::string_view name) {
      if (a && b)
        schema.fail(fmt::format("\"{}\" is not supported beside its exclusive form", name));
    };
    only_one(low, low_excluded, "minimum");
    only_one(high, high_excluded, "maximum");
    if (low_excluded) low = low_excluded;
    if (high_excluded) high = high_excluded;
    if (low || high) return numbers_between(expressions_, kind, low, high);
    return kind == NumberKind::kInteger ? grammar_.integer() : grammar_.number();
  }

  // --- Strings ---

  std::int32_t count(const JsonField& schema, std::string_view name, std::int32_t otherwise) {
    const auto field = schema.find(name);
    return field ? static_cast<std::int32_t>(field->as_integer(0, kMaxCount)) : otherwise;
  }

  ExpressionId string(const JsonField& schema) {
    const JsonLength length{.min = count(schema, "minLength", 0),
                            .max = count(schema, "maxLength", Expression::kNoMax)};
    const bool has_length = schema.find("minLength") || schema.find("maxLength");
    if (length.max != Expression::kNoMax && length.max < length.min) return kNothing;
    std::vector<Machine> wanted;
    std::optional<ExpressionId> content;
    for (const std::string_view name : {"pattern", "format"}) {
      const auto field = schema.find(name);
      if (!field) continue;
      const bool is_pattern = name == "pattern";
      const std::string_view pattern = is_pattern ? field->as_string() : format_pattern(*field);
      const RegexMatch match = is_pattern ? RegexMatch::kAnywhere : RegexMatch::kWhole;
      const auto make = [&](Expressions& all) {
        return parse_regex(all, pattern, Spelling::kJsonString, match);
      };
      try {
        content = make(expressions_);
        wanted.push_back(machine(make));
      } catch (const Error& error) {
        field->fail(error.what());
      }
    }
    if (!content) return grammar_.string(length);
    if (wanted.size() == 1 && !has_length) return grammar_.string_of(*content);
    return grammar_.string_of(all_of(schema, std::move(wanted), length));
  }

  template <typename Make>
  static Machine machine(const Make& make) {
    auto own = std::make_unique<Expressions>(std::size_t{kMaxSchemaStates} * 8);
    const ExpressionId start = make(*own);
    Automaton automaton(std::move(own));
    return to_machine(automaton, start, kMaxSchemaStates);
  }

  ExpressionId all_of(const JsonField& schema, std::vector<Machine> wanted,
                      const JsonLength& length) {
    try {
      wanted.push_back(machine([&](Expressions& all) {
        return all.repeat(one_of(all, CodePointSet::all(), Spelling::kJsonString), length.min,
                          length.max);
      }));
      while (wanted.size() > 1) {
        const Machine last = std::move(wanted.back());
        wanted.pop_back();
        wanted.back() = intersection(wanted.back(), last, kMaxSchemaStates);
      }
    } catch (const Error& error) {
      schema.fail(
          fmt::format("pattern, format and lengths of a string together: {}", error.what()));
    }
    return expressions_.machine(std::move(wanted.front()));
  }

  // --- Lists ---

  ExpressionId list(const JsonField& schema) {
    JsonList elements{.first = {},
                      .min = count(schema, "minItems", 0),
                      .max = count(schema, "maxItems", Expression::kNoMax)};
    if (elements.max != Expression::kNoMax && elements.max < elements.min) return kNothing;
    if (const auto first = schema.find("prefixItems")) {
      for (const JsonField& element : elements_of(*first)) elements.first.push_back(value(element));
    }
    const auto items = schema.find("items");
    if (items && items->json().is_array()) {
      items->fail("a list of schemas is not supported; write prefixItems");
    }
    elements.others = items ? value(*items) : grammar_.any_value();
    return grammar_.list(elements);
  }

  // --- Objects ---

  ExpressionId object(const JsonField& schema) {
    const auto properties = schema.find("properties");
    const auto required = schema.find("required");
    const auto additional = schema.find("additionalProperties");
    std::vector<std::string> must;
    if (required) {
      for (const JsonField& name : elements_of(*required)) must.push_back(name.as_string());
    }
    std::vector<JsonMember> members;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, ExpressionId text) {
      const bool is_required = std::find(must.begin(), must.end(), name) != must.end();
      members.push_back({.key = grammar_.key(name), .value = text, .is_required = is_required});
      names.push_back(name);
    };
    if (properties) {
      if (!properties->json().is_object()) properties->fail("expected an object");
      for (const auto& [name, json] : std::get<JsonObject>(properties->json().value())) {
        add(name, value(JsonField(json, std::string(kSource), way_to(*properties, name))));
      }
    }
    const ExpressionId other = additional ? value(*additional) : grammar_.any_value();
    std::map<std::string_view, bool> is_named;
    for (const std::string& name : names) is_named[name] = true;
    for (const std::string& name : must) {
      if (!is_named.contains(name)) add(name, other);
    }
    const bool is_open = additional ? other != kNothing : !properties && !required;
    JsonMember others{.value = other};
    if (is_open) others.key = names.empty() ? grammar_.string() : grammar_.key_other_than(names);
    return grammar_.object(members, others);
  }

  static std::string way_to(const JsonField& parent, std::string_view name) {
    return parent.path().empty() ? std::string(name) : fmt::format("{}.{}", parent.path(), name);
  }

  // --- References ---

  std::int32_t rule_of(const JsonField& reference) {
    const std::string& target = reference.as_string();
    const auto [at, is_new] = rules_.emplace(target, 0);
    if (is_new) {
      at->second = expressions_.add_rule();
      unread_.emplace_back(at->second, resolve(reference));
    }
    return at->second;
  }

  // RFC 6901, as the fragment of a URI.
  JsonField resolve(const JsonField& reference) {
    const std::string& target = reference.as_string();
    if (target == "#") return root_;
    if (!target.starts_with("#/")) {
      reference.fail(
          fmt::format("\"{}\": only references into this schema (#/...) are supported", target));
    }
    JsonField at = root_;
    for (std::size_t begin = 2; begin <= target.size();) {
      const std::size_t end = std::min(target.find('/', begin), target.size());
      const std::string step = unescaped(target.substr(begin, end - begin));
      begin = end + 1;
      const Json* next = at.json().find(step);
      std::size_t index = 0;
      if (at.json().is_array() && !step.empty() && step.size() < 9 &&
          std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        index = std::stoul(step);
        const auto& list = std::get<JsonArray>(at.json().value());
        next = index < list.size() ? &list[index] : nullptr;
      }
      if (next == nullptr) reference.fail(fmt::format("\"{}\" does not exist", target));
      at = JsonField(*next, std::string(kSource), way_to(at, step));
    }
    return at;
  }

  static std::string unescaped(std::string_view step) {
    std::string result;
    for (std::size_t i = 0; i < step.size(); ++i) {
      const bool is_hex = step[i] == '%' && i + 2 < step.size() &&
                          std::isxdigit(static_cast<unsigned char>(step[i + 1])) != 0 &&
                          std::isxdigit(static_cast<unsigned char>(step[i + 2])) != 0;
      if (is_hex) {
        result += static_cast<char>(std::stoi(std::string(step.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else if (step[i] == '~' && i + 1 < step.size() &&
                 (step[i + 1] == '0' || step[i + 1] == '1')) {
        result += step[++i] == '0' ? '~' : '/';
      } else {
        result += step[i];
      }
    }
    return result;
  }

  Expressions& expressions_;
  JsonGrammar grammar_;
  JsonField root_;
  std::map<std::string, std::int32_t> rules_;
  std::deque<std::pair<std::int32_t, JsonField>> unread_;
};

}  // namespace

ExpressionId parse_json_schema(Expressions& expressions, std::string_view text) {
  const Json root = parse_json(text, kSource, kLimits);
  return SchemaReader(expressions, root).read();
}

}  // namespace longhaul::forms
