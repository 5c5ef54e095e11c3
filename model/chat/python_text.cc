#include "model/chat/python_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

void add_escaped(std::string& out, char32_t code) {
  if (code < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<unsigned>(code));
  }
}

std::string python_quoted(std::string_view text) {
  const bool single =
      text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code == static_cast<char32_t>(quote) || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (is_printable(c.code)) {
      out += text.substr(at, c.length);
    } else {
      add_escaped(out, c.code);
    }
    at += c.length;
  }
  return out + quote;
}

Text of(std::string_view text) { return Text(std::string(text), Origin::kTemplate); }

void append_repr(Text& out, const Value& value);

void append_list(Text& out, const List& list) {
  out.append(list.is_tuple ? "(" : "[", Origin::kTemplate);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ", Origin::kTemplate);
    append_repr(out, list.items[i]);
  }
  if (list.is_tuple && list.items.size() == 1) out.append(",", Origin::kTemplate);
  out.append(list.is_tuple ? ")" : "]", Origin::kTemplate);
}

void append_dict(Text& out, const Dict& dict) {
  out.append("{", Origin::kTemplate);
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.append(", ", Origin::kTemplate);
    first = false;
    append_repr(out, key);
    out.append(": ", Origin::kTemplate);
    append_repr(out, value);
  }
  out.append("}", Origin::kTemplate);
}

Text repr_of_one(const Value& value) {
  if (value.is_undefined()) return of("Undefined");
  if (value.is_none()) return of("None");
  if (value.is_bool()) return of(value.truth() ? "True" : "False");
  if (value.is_integer()) return of(fmt::format("{}", *value.integer()));
  if (value.is_float()) return of(python_float(*value.number()));
  if (const Text* text = value.text()) return Text(python_quoted(text->bytes()), text->origin());
  throw Error(ErrorCode::kUnsupported, fmt::format("a {} cannot be printed", value.type_name()));
}

// A list is written into the text of what holds it: no level copies all that lies below it.
void append_repr(Text& out, const Value& value) {
  if (const List* list = value.list()) return append_list(out, *list);
  if (const Dict* dict = value.dict()) return append_dict(out, *dict);
  out.append(repr_of_one(value));
}

}  // namespace

// Python writes the shortest digits, as fmt does, with exponents from 1e16 and below 1e-4.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  const double size = std::fabs(value);
  std::string text;
  if (size >= 1e16 || size < 1e-4) {
    text = fmt::format("{:e}", value);
    // The shortest digits: {:e} alone would write six.
    for (int digits = 0; digits <= 17; ++digits) {
      text = fmt::format("{:.{}e}", value, digits);
      if (std::stod(text) == value) break;
    }
    return text;
  }
  for (int digits = 1; digits <= 21; ++digits) {
    text = fmt::format("{:.{}f}", value, digits);
    if (std::stod(text) == value) break;
  }
  return text;
}

Text python_str(const Value& value) {
  if (value.is_undefined()) return {};
  if (const Text* text = value.text()) return *text;
  return python_repr(value);
}

Text python_repr(const Value& value) {
  Text out;
  append_repr(out, value);
  return out;
}

}  // namespace longhaul::chat
