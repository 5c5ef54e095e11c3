// ICU knows case and kinds of characters; everything else is counting bytes.
#include "model/chat/unicode.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

namespace longhaul::chat {
namespace {

UChar32 point(char32_t code) { return static_cast<UChar32>(code); }

std::string utf8(const icu::UnicodeString& text) {
  std::string bytes;
  text.toUTF8String(bytes);
  return bytes;
}

icu::UnicodeString unicode(std::string_view text) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int>(text.size())));
}

std::string in_case(std::string_view text, Case to) {
  icu::UnicodeString all = unicode(text);
  return utf8(to == Case::kUpper ? all.toUpper(icu::Locale::getRoot())
                                 : all.toLower(icu::Locale::getRoot()));
}

// The first letter of each word large, the others small; a word ends where nothing has a case.
std::string in_title_case(std::string_view text, bool first_word_only) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const std::string_view bytes = text.substr(at, c.length);
    if (inside || (first_word_only && at > 0)) {
      out += in_case(bytes, Case::kLower);
    } else {
      icu::UnicodeString(u_totitle(point(c.code))).toUTF8String(out);
    }
    inside = u_hasBinaryProperty(point(c.code), UCHAR_CASED) != 0;
    at += c.length;
  }
  return out;
}

bool is_one_of(std::string_view text, std::size_t at, const std::string_view* chars) {
  const Character c = character_at(text, at);
  if (chars == nullptr) return is_python_space(c.code);
  for (std::size_t i = 0; i < chars->size();) {
    const Character candidate = character_at(*chars, i);
    if (chars->substr(i, candidate.length) == text.substr(at, c.length)) return true;
    i += candidate.length;
  }
  return false;
}

std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at + character_at(text, at).length == end ? at : end - 1;
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t n = lead < 0x80    ? 1
                        : lead >= 0xF0 ? 4
                        : lead >= 0xE0 ? 3
                        : lead >= 0xC2 ? 2
                                       : 0;
  if (n == 0 || lead > 0xF4 || at + n > text.size()) return {lead, 1};
  char32_t code = n == 1 ? lead : lead & (0x7FU >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {lead, 1};
    code = code << 6 | (byte(at + i) & 0x3FU);
  }
  return {code, n};
}

std::size_t count_code_points(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).length) ++n;
  return n;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_at(text, at).length;
  return at;
}

bool is_python_space(char32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_letter(char32_t code) { return u_isalpha(point(code)) != 0; }
bool is_digit(char32_t code) { return u_isdigit(point(code)) != 0; }

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  const auto type = u_charType(point(code));
  return type != U_UNASSIGNED && type != U_CONTROL_CHAR && type != U_FORMAT_CHAR &&
         type != U_SURROGATE && type != U_PRIVATE_USE_CHAR && type != U_SPACE_SEPARATOR &&
         type != U_LINE_SEPARATOR && type != U_PARAGRAPH_SEPARATOR;
}

Text change_case(const Text& text, Case to) {
  const std::string_view all = text.bytes();
  if (to == Case::kTitle || to == Case::kCapitalize)
    return Text(in_title_case(all, to == Case::kCapitalize), text.origin());
  // Part by part, so that each keeps its mark.
  Text out;
  std::size_t done = 0;
  for (const ByteRange& range : text.data()) {
    out.append(in_case(all.substr(done, range.begin - done), to), Origin::kTemplate);
    out.append(in_case(all.substr(range.begin, range.end - range.begin), to), Origin::kData);
    done = range.end;
  }
  out.append(in_case(all.substr(done), to), Origin::kTemplate);
  return out;
}

bool has_only_case(std::string_view text, Case want) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const bool upper = u_isUUppercase(point(c.code)) != 0;
    const bool lower = u_isULowercase(point(c.code)) != 0;
    if (want == Case::kUpper ? lower : upper) return false;
    any = any || upper || lower;
    at += c.length;
  }
  return any;
}

ByteRange stripped(std::string_view text, Side side, const std::string_view* chars) {
  ByteRange range{0, text.size()};
  if (side != Side::kRight) {
    while (range.begin < range.end && is_one_of(text, range.begin, chars))
      range.begin += character_at(text, range.begin).length;
  }
  if (side != Side::kLeft) {
    while (range.end > range.begin) {
      const std::size_t at = character_before(text, range.end);
      if (!is_one_of(text, at, chars)) break;
      range.end = at;
    }
  }
  range.end = std::max(range.begin, range.end);
  return range;
}

}  // namespace longhaul::chat
