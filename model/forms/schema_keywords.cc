#include "model/forms/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>

namespace longhaul::forms {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 16> kDescriptions = {
    "title",    "description",      "default",         "examples", "example", "deprecated",
    "readOnly", "writeOnly",        "$comment",        "$schema",  "$defs",   "definitions",
    "$id",      "contentMediaType", "contentEncoding", "id"};
constexpr std::array<std::string_view, 3> kOfObjects = {"properties", "required",
                                                        "additionalProperties"};
constexpr std::array<std::string_view, 4> kOfArrays = {"items", "prefixItems", "minItems",
                                                       "maxItems"};
constexpr std::array<std::string_view, 4> kOfStrings = {"minLength", "maxLength", "pattern",
                                                        "format"};
constexpr std::array<std::string_view, 4> kOfNumbers = {"minimum", "maximum", "exclusiveMinimum",
                                                        "exclusiveMaximum"};
constexpr std::array<std::string_view, 7> kOfAll = {"type",  "enum",  "const", "anyOf",
                                                    "oneOf", "allOf", "$ref"};

constexpr std::array<std::pair<std::string_view, JsonKind>, 7> kKinds = {{
    {"null", JsonKind::kNull},
    {"boolean", JsonKind::kBoolean},
    {"integer", JsonKind::kInteger},
    {"number", JsonKind::kNumber},
    {"string", JsonKind::kString},
    {"array", JsonKind::kArray},
    {"object", JsonKind::kObject},
}};

// RFC 3339 and RFC 4122; of addresses the plain ones. Days that not every year has are left out.
constexpr std::string_view kDate =
    "[1-9]\\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
    "(?:0[13578]|1[02])-31)";
constexpr std::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kDateTime =
    "[1-9]\\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
    "(?:0[13578]|1[02])-31)T"
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
constexpr std::string_view kIpv4 =
    "(?:(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
constexpr std::string_view kHostname =
    "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    "(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?){0,5}";
constexpr std::string_view kEmail =
    "[a-zA-Z0-9_+-]{1,16}(?:\\.[a-zA-Z0-9_+-]{1,16}){0,2}@"
    "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    "(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?){1,4}";

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kFormats = {{
    {"date", kDate},
    {"time", kTime},
    {"date-time", kDateTime},
    {"uuid", kUuid},
    {"ipv4", kIpv4},
    {"hostname", kHostname},
    {"email", kEmail},
}};

bool contains(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_description(std::string_view name) {
  return contains(kDescriptions, name) || name.starts_with("x-");
}

Names names_of(JsonKind kind) {
  switch (kind) {
    case JsonKind::kObject:
      return kOfObjects;
    case JsonKind::kArray:
      return kOfArrays;
    case JsonKind::kString:
      return kOfStrings;
    case JsonKind::kInteger:
    case JsonKind::kNumber:
      return kOfNumbers;
    case JsonKind::kNull:
    case JsonKind::kBoolean:
      break;
  }
  return {};
}

const JsonObject& members_of(const JsonField& schema) {
  return std::get<JsonObject>(schema.json().value());
}

// A keyword that asks for nothing with this value.
bool is_neutral(std::string_view name, const Json& value) {
  const auto* flag = std::get_if<bool>(&value.value());
  if (name == "uniqueItems" || name == "nullable") return flag != nullptr && !*flag;
  const auto* number = std::get_if<std::int64_t>(&value.value());
  if (name == "minProperties") return number != nullptr && *number == 0;
  return false;
}

}  // namespace

void check_keywords(const JsonField& schema, bool is_root) {
  for (const auto& [name, value] : members_of(schema)) {
    const bool is_known = contains(kOfAll, name) || contains(kOfObjects, name) ||
                          contains(kOfArrays, name) || contains(kOfStrings, name) ||
                          contains(kOfNumbers, name);
    if ((name == "$id" || name == "id") && !is_root) {
      schema.fail(fmt::format("\"{}\" is supported at the top only", name));
    }
    if (is_known || is_description(name) || is_neutral(name, value)) continue;
    schema.fail(fmt::format("the keyword \"{}\" is not supported in given forms", name));
  }
}

void check_stands_alone(const JsonField& schema, std::initializer_list<std::string_view> allowed) {
  for (const auto& [name, value] : members_of(schema)) {
    if (is_description(name) || is_neutral(name, value)) continue;
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    schema.fail(
        fmt::format("the keyword \"{}\" is not supported beside \"{}\"", name, *allowed.begin()));
  }
}

JsonKind kind_named(const JsonField& name) {
  const std::string& text = name.as_string();
  for (const auto& [known, kind] : kKinds) {
    if (known == text) return kind;
  }
  name.fail(fmt::format("there is no type \"{}\"", text));
}

bool speaks_of(const JsonField& schema, JsonKind kind) {
  const Names names = names_of(kind);
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return schema.json().find(name) != nullptr; });
}

bool is_of_kind(const Json& value, JsonKind kind) {
  const auto& v = value.value();
  const auto* number = std::get_if<double>(&v);
  switch (kind) {
    case JsonKind::kNull:
      return value.is_null();
    case JsonKind::kBoolean:
      return std::holds_alternative<bool>(v);
    case JsonKind::kInteger:
      return std::holds_alternative<std::int64_t>(v) ||
             (number != nullptr && std::floor(*number) == *number);
    case JsonKind::kNumber:
      return std::holds_alternative<std::int64_t>(v) || number != nullptr;
    case JsonKind::kString:
      return value.is_string();
    case JsonKind::kArray:
      return value.is_array();
    case JsonKind::kObject:
      return value.is_object();
  }
  return false;
}

std::string_view format_pattern(const JsonField& format) {
  const std::string& name = format.as_string();
  std::string known;
  for (const auto& [format_name, pattern] : kFormats) {
    if (format_name == name) return pattern;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format_name);
  }
  format.fail(fmt::format("the format \"{}\" is not supported; supported are {}", name, known));
}

}  // namespace longhaul::forms
