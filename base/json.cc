// The reader drives nlohmann::json's SAX parser (syntax, UTF-8, numbers) and builds our own tree,
// adding the limits that the library does not have. Nothing else of that library is used, so it is
// not visible in any header.
#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"

namespace longhaul {
namespace {

// Reads characters and counts them, so that the handler can say where in the text it is.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, std::size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* count_;
};

class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view source, const JsonLimits& limits, const std::size_t& offset)
      : source_(source), limits_(limits), offset_(offset) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Json(static_cast<std::int64_t>(value)));
    }
    return add(Json(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(Json(value));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(std::size_t /*size*/) override { return open(Json(JsonObject{})); }
  bool key(string_t& name) override {
    Open& top = open_.back();
    if (!top.keys.insert(name).second)
      fail(fmt::format("the key \"{}\" appears twice in one object", name));
    top.key = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(Json(JsonArray{})); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    // The library's text is "[json.exception.parse_error.101] parse error at line 2, column 5:
    // reason"; keep the reason, and the line of a text that has several: else the byte says it.
    std::string reason = error.what();
    if (const auto bracket = reason.find("] "); bracket != std::string::npos)
      reason.erase(0, bracket + 2);
    std::string place = fmt::format("byte {}", position);
    constexpr std::string_view kAt = "parse error at ";
    if (const auto colon = reason.find(": "); reason.starts_with(kAt) && colon != reason.npos) {
      const std::string line = reason.substr(kAt.size(), colon - kAt.size());
      if (!line.starts_with("line 1,")) place += fmt::format(" ({})", line);
      reason.erase(0, colon + 2);
    }
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}: {}", source_, place, reason));
  }

 private:
  struct Open {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: byte {}: {}", source_, offset_, reason));
  }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* list = std::get_if<JsonArray>(&open_.back().value.value())) {
      list->push_back(std::move(value));
    } else {
      std::get<JsonObject>(open_.back().value.value())
          .emplace_back(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  std::string source_;
  JsonLimits limits_;
  const std::size_t& offset_;
  std::vector<Open> open_;
  Json root_;
};

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_text(std::string& out, const Json& json) {
  struct Visitor {
    std::string& out;
    void operator()(std::nullptr_t) const { out += "null"; }
    void operator()(bool value) const { out += value ? "true" : "false"; }
    void operator()(std::int64_t value) const {
      fmt::format_to(std::back_inserter(out), "{}", value);
    }
    void operator()(double value) const {
      if (std::isfinite(value)) {
        fmt::format_to(std::back_inserter(out), "{}", value);
      } else {
        out += "null";
      }
    }
    void operator()(const std::string& value) const { append_string(out, value); }
    void operator()(const JsonArray& list) const {
      out += '[';
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (i > 0) out += ',';
        append_text(out, list[i]);
      }
      out += ']';
    }
    void operator()(const JsonObject& object) const {
      out += '{';
      for (std::size_t i = 0; i < object.size(); ++i) {
        if (i > 0) out += ',';
        append_string(out, object[i].first);
        out += ':';
        append_text(out, object[i].second);
      }
      out += '}';
    }
  };
  std::visit(Visitor{out}, json.value());
}

}  // namespace

std::string_view Json::kind_name() const {
  static constexpr std::string_view kNames[] = {
      "null", "true or false", "an integer", "a number", "a string", "a list", "an object"};
  return kNames[value_.index()];
}

const Json* Json::find(std::string_view key) const {
  const auto* object = std::get_if<JsonObject>(&value_);
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object) {
    if (name == key) return &value;
  }
  return nullptr;
}

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: {} bytes of JSON; at most {} are accepted", source, text.size(),
                            limits.max_bytes));
  }
  // The library takes a zero byte for the end of the text and would ignore what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: byte {}: a zero byte is not JSON", source, zero));
  }
  std::size_t offset = 0;
  TreeBuilder builder(source, limits, offset);
  const bool ok = nlohmann::json::sax_parse(
      CountingIterator(text.data(), &offset), CountingIterator(text.data() + text.size(), &offset),
      &builder, nlohmann::json::input_format_t::json, /*strict=*/true);
  if (!ok)
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: byte {}: not JSON", source, offset));
  return builder.take();
}

std::string to_text(const Json& json) {
  std::string out;
  append_text(out, json);
  return out;
}

JsonField::JsonField(const Json& json, std::string source, std::string path)
    : json_(&json), source_(std::move(source)), path_(std::move(path)) {}

JsonField JsonField::at(std::string_view key) const {
  if (!json_->is_object()) fail(fmt::format("expected an object, found {}", json_->kind_name()));
  const std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  const Json* member = json_->find(key);
  if (member == nullptr)
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} is missing", source_, path));
  return JsonField(*member, source_, path);
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  if (!json_->is_object()) fail(fmt::format("expected an object, found {}", json_->kind_name()));
  const Json* member = json_->find(key);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return JsonField(*member, source_,
                   path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

std::size_t JsonField::size() const {
  const auto* list = std::get_if<JsonArray>(&json_->value());
  if (list == nullptr) fail(fmt::format("expected a list, found {}", json_->kind_name()));
  return list->size();
}

JsonField JsonField::at(std::size_t index) const {
  const std::size_t n = size();
  if (index >= n) fail(fmt::format("has {} elements, element {} was asked for", n, index));
  return JsonField(std::get<JsonArray>(json_->value())[index], source_,
                   fmt::format("{}[{}]", path_, index));
}

bool JsonField::as_bool() const {
  const auto* value = std::get_if<bool>(&json_->value());
  if (value == nullptr) fail(fmt::format("expected true or false, found {}", json_->kind_name()));
  return *value;
}

bool JsonField::bool_or(std::string_view key, bool otherwise) const {
  const auto member = find(key);
  return member ? member->as_bool() : otherwise;
}

std::int64_t JsonField::as_integer(std::int64_t min, std::int64_t max) const {
  std::int64_t value = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&json_->value())) {
    value = *integer;
  } else if (const auto* number = std::get_if<double>(&json_->value());
             number != nullptr && std::nearbyint(*number) == *number &&
             std::fabs(*number) < 0x1p62) {
    value = static_cast<std::int64_t>(*number);
  } else {
    fail(fmt::format("expected an integer, found {}", json_->kind_name()));
  }
  if (value < min || value > max) fail(fmt::format("{} is outside [{}, {}]", value, min, max));
  return value;
}

double JsonField::as_number() const {
  if (const auto* integer = std::get_if<std::int64_t>(&json_->value()))
    return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(&json_->value());
  if (number == nullptr) fail(fmt::format("expected a number, found {}", json_->kind_name()));
  return *number;
}

const std::string& JsonField::as_string() const {
  const auto* text = std::get_if<std::string>(&json_->value());
  if (text == nullptr) fail(fmt::format("expected a string, found {}", json_->kind_name()));
  return *text;
}

void JsonField::fail(std::string_view reason) const {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: {}{}{}", source_, path_, path_.empty() ? "" : ": ", reason));
}

}  // namespace longhaul
