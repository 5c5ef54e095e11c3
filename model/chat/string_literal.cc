#include "model/chat/string_literal.h"

#include <algorithm>
#include <charconv>

namespace longhaul::chat {
namespace {

// The number of up to `most` digits at `at`, which moves past them; false without exactly `least`.
bool read_digits(std::string_view text, std::size_t& at, int base, std::size_t least,
                 std::size_t most, char32_t& code) {
  unsigned value = 0;
  const char* begin = text.data() + at;
  const char* end = begin + std::min(most, text.size() - at);
  const auto [stop, error] = std::from_chars(begin, end, value, base);
  if (error != std::errc() || static_cast<std::size_t>(stop - begin) < least) return false;
  at += static_cast<std::size_t>(stop - begin);
  code = value;
  return true;
}

void add_utf8(std::string& out, char32_t code) {
  const auto add = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

// The escape after a backslash at `at`; false when it is none.
bool add_escape(std::string_view text, std::size_t& at, std::string& out) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
  const char c = text[at];
  if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
    out += kMeaning[known];
    ++at;
    return true;
  }
  if (c == '\n') {  // a line that goes on
    ++at;
    return true;
  }
  char32_t code = 0;
  std::size_t after = at + 1;
  bool good = false;
  if (c == 'x') good = read_digits(text, after, 16, 2, 2, code);
  if (c == 'u') good = read_digits(text, after, 16, 4, 4, code);
  if (c == 'U') good = read_digits(text, after, 16, 8, 8, code);
  if (c >= '0' && c <= '7') {
    after = at;
    good = read_digits(text, after, 8, 1, 3, code);
  }
  if (!good || code > 0x10FFFF) return false;
  at = after;
  add_utf8(out, code);
  return true;
}

}  // namespace

std::size_t string_literal_length(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[0]) {
      return i + 1;
    }
  }
  return 0;
}

std::string unescaped(std::string_view inside) {
  std::string out;
  for (std::size_t at = 0; at < inside.size();) {
    if (inside[at] != '\\' || at + 1 == inside.size()) {
      out += inside[at++];
      continue;
    }
    ++at;
    if (!add_escape(inside, at, out)) out += '\\';
  }
  return out;
}

}  // namespace longhaul::chat
