// The top-level fields of a configuration file: typed reads with defaults, and the difference
// between a field that is missing (its default counts) and one that is null (it is switched off).
// Used by the readers of config.json and generation_config.json only.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace longhaul {

inline constexpr std::int64_t kMaxPositions = std::int64_t{1}
                                              << 40;  // that a model may claim to read

class ConfigFields {
 public:
  // `json` must be an object and outlive this; `source` names it in errors.
  ConfigFields(const Json& json, std::string_view source);

  bool has(std::string_view key) const;  // also when null
  std::optional<JsonField> find(std::string_view key) const { return root_.find(key); }
  const JsonField& root() const { return root_; }
  const std::string& source() const { return source_; }

  // Missing and null give the default; anything outside [min, max] is refused.
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                       std::int64_t max) const;
  double number(std::string_view key, double fallback, double min, double max) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  // One token id or a list of them; missing and null give none. Each is in [0, n_ids).
  std::vector<std::int32_t> token_ids(std::string_view key, std::int64_t n_ids) const;

  // Throws kUnsupported: "<source>: <path>: <reason>".
  [[noreturn]] void unsupported(std::string_view path, std::string_view reason) const;

 private:
  std::string source_;
  JsonField root_;
};

// True for what switches a feature on: not missing, null, false, zero, or an empty list, object or
// string.
bool is_set(const std::optional<JsonField>& field);

// A finite number in [min, max].
double checked_number(const JsonField& field, double min, double max);

// How a value reads in a message: a number, word or short text itself, else "an object" and so on.
std::string shown(const Json& value);

}  // namespace longhaul
