// JSON values, a strict reader and a writer. The reader refuses what lenient ones let pass
// (duplicate keys, deep nesting, invalid UTF-8, NaN), and `JsonField` carries the way to a value,
// so that errors read "config.json: rope_scaling.factor: expected a number".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace longhaul {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in the order of the text

// One value. Integers that fit std::int64_t keep their exact value; other numbers are doubles.
class Json {
 public:
  using Value =
      std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, JsonArray, JsonObject>;
  Json() : value_(nullptr) {}
  template <typename T>
  Json(T value)
      : value_(convert(std::move(value))) {}  // NOLINT: literals read naturally in builders

  const Value& value() const { return value_; }
  Value& value() { return value_; }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_object() const { return std::holds_alternative<JsonObject>(value_); }
  bool is_array() const { return std::holds_alternative<JsonArray>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  // "null", "true or false", "an integer", "a number", "a string", "a list", "an object": for
  // messages.
  std::string_view kind_name() const;
  // The member `key` of an object, or nullptr (also when this is no object).
  const Json* find(std::string_view key) const;

 private:
  template <typename T>
  static Value convert(T value) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::nullptr_t> ||
                  std::is_same_v<T, JsonArray> || std::is_same_v<T, JsonObject>) {
      return Value(std::move(value));
    } else if constexpr (std::is_integral_v<T>) {
      return Value(static_cast<std::int64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      return Value(static_cast<double>(value));
    } else {
      return Value(std::string(std::move(value)));
    }
  }
  Value value_;
};

struct JsonLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
  int max_depth = 64;
};

// Parses one JSON text. `source` names it in errors ("config.json", "requests.jsonl line 7").
// Throws kCorruptData with source, byte offset and reason: syntax, depth, duplicate key, invalid
// UTF-8, number out of range, anything after the value.
Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

// On one line, without spaces, non-ASCII as UTF-8; doubles in the shortest form that reads back
// equal; NaN and infinities as null.
std::string to_text(const Json& json);

// A value of a parsed document together with its source and path. Cheap to copy; the Json must
// outlive it. Every accessor throws kCorruptData naming source, path, what was expected and what
// was found.
class JsonField {
 public:
  JsonField(const Json& json, std::string source, std::string path = "");

  JsonField at(std::string_view key) const;                   // the member, which must exist
  std::optional<JsonField> find(std::string_view key) const;  // nullopt when missing or null
  std::size_t size() const;                                   // elements of a list
  JsonField at(std::size_t index) const;

  bool as_bool() const;
  // The member, or `otherwise` when it is missing or null.
  bool bool_or(std::string_view key, bool otherwise) const;
  std::int64_t as_integer(std::int64_t min,
                          std::int64_t max) const;  // a double with an integral value is accepted
  double as_number() const;
  const std::string& as_string() const;
  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }

  // Throws kCorruptData: "<source>: <path>: <reason>".
  [[noreturn]] void fail(std::string_view reason) const;

 private:
  const Json* json_;
  std::string source_;
  std::string path_;
};

}  // namespace longhaul
