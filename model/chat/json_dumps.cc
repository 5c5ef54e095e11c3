// json.dumps as Python writes it: other separators and escapes than base/json.h's to_text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/chat/python_text.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

void add_unicode_escape(std::string& out, char32_t code) {
  if (code >= 0x10000) {
    const char32_t rest = code - 0x10000;
    out += fmt::format("\\u{:04x}\\u{:04x}", static_cast<unsigned>(0xD800 + (rest >> 10)),
                       static_cast<unsigned>(0xDC00 + (rest & 0x3FF)));
  } else {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  }
}

std::string json_string(std::string_view text, bool ascii_only) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const std::size_t known =
        c.code < 0x80 ? kEscaped.find(static_cast<char>(c.code)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out += '\\';
      out += kLetters[known];
    } else if (c.code < 0x20 || (ascii_only && c.code > 0x7E)) {
      add_unicode_escape(out, c.code);
    } else {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  return out + '"';
}

std::string float_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return python_float(value);
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    if (value.is_none()) return plain("null");
    if (value.is_bool()) return plain(value.truth() ? "true" : "false");
    if (value.is_integer()) return plain(fmt::format("{}", *value.integer()));
    if (value.is_float()) return plain(float_text(*value.number()));
    if (const Text* text = value.text()) return write_text(*text);
    if (const List* list = value.list()) return write_list(*list, level);
    if (const Dict* dict = value.dict()) return write_dict(*dict, level);
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tojson: a value of type {} is no JSON", value.type_name()));
  }
  Text take() { return std::move(out_); }

 private:
  void plain(std::string_view text) { out_.append(text, Origin::kTemplate); }
  void write_text(const Text& text) {
    out_.append(json_string(text.bytes(), style_.ascii_only), text.origin());
  }
  void new_line(int level) {
    if (!style_.indent) return;
    plain("\n");
    for (int i = 0; i < level; ++i) plain(*style_.indent);
  }

  void write_list(const List& list, int level) {
    if (list.items.empty()) return plain("[]");
    plain("[");
    bool first = true;
    for (const Value& item : list.items) {
      if (!std::exchange(first, false)) plain(style_.item_separator);
      new_line(level + 1);
      write(item, level + 1);
    }
    new_line(level);
    plain("]");
  }

  void write_key(const Value& key) {
    if (key.text() != nullptr) return write_text(*key.text());
    plain("\"");
    write(key, 0);
    plain("\"");
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return plain("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    plain("{");
    bool first = true;
    for (const auto* entry : entries) {
      if (!std::exchange(first, false)) plain(style_.item_separator);
      new_line(level + 1);
      write_key(entry->first);
      plain(style_.key_separator);
      write(entry->second, level + 1);
    }
    new_line(level);
    plain("}");
  }

  const JsonStyle& style_;
  Text out_;
};

}  // namespace

Text json_dumps(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace longhaul::chat
