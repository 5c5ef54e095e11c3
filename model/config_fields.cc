#include "model/config_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace longhaul {

ConfigFields::ConfigFields(const Json& json, std::string_view source)
    : source_(source), root_(json, source_) {
  if (!json.is_object()) root_.fail(fmt::format("expected an object, found {}", json.kind_name()));
}

bool ConfigFields::has(std::string_view key) const { return root_.json().find(key) != nullptr; }

std::int64_t ConfigFields::integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                                   std::int64_t max) const {
  const auto field = find(key);
  return field ? field->as_integer(min, max) : fallback;
}

double ConfigFields::number(std::string_view key, double fallback, double min, double max) const {
  const auto field = find(key);
  return field ? checked_number(*field, min, max) : fallback;
}

bool ConfigFields::boolean(std::string_view key, bool fallback) const {
  const auto field = find(key);
  return field ? field->as_bool() : fallback;
}

std::string ConfigFields::text(std::string_view key, std::string_view fallback) const {
  const auto field = find(key);
  return field ? field->as_string() : std::string(fallback);
}

std::vector<std::int32_t> ConfigFields::token_ids(std::string_view key, std::int64_t n_ids) const {
  const auto field = find(key);
  if (!field) return {};
  if (!field->json().is_array()) {
    return {static_cast<std::int32_t>(field->as_integer(0, n_ids - 1))};
  }
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < field->size(); ++i) {
    ids.push_back(static_cast<std::int32_t>(field->at(i).as_integer(0, n_ids - 1)));
  }
  return ids;
}

void ConfigFields::unsupported(std::string_view path, std::string_view reason) const {
  throw Error(ErrorCode::kUnsupported, fmt::format("{}: {}: {}", source_, path, reason));
}

bool is_set(const std::optional<JsonField>& field) {
  if (!field) return false;
  struct Visitor {
    bool operator()(std::nullptr_t) const { return false; }
    bool operator()(bool value) const { return value; }
    bool operator()(std::int64_t value) const { return value != 0; }
    bool operator()(double value) const { return value != 0; }
    bool operator()(const std::string& value) const { return !value.empty(); }
    bool operator()(const JsonArray& value) const { return !value.empty(); }
    bool operator()(const JsonObject& value) const { return !value.empty(); }
  };
  return std::visit(Visitor{}, field->json().value());
}

double checked_number(const JsonField& field, double min, double max) {
  const double value = field.as_number();
  if (!std::isfinite(value) || value < min || value > max) {
    field.fail(fmt::format("{} is outside [{}, {}]", value, min, max));
  }
  return value;
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_array() || value.is_object()) return std::string(value.kind_name());
  std::string text = to_text(value);
  return text.size() <= kLongest ? text : std::string(value.kind_name());
}

}  // namespace longhaul
