#include "model/forms/regex_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::forms {
namespace {

constexpr std::size_t kMaxPatternBytes = std::size_t{64} << 10;

// One character of UTF-8, or kNone.
std::uint32_t decode(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(at);
  const std::size_t n = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (n == 0 || at + n > text.size()) return RegexReader::kNone;
  std::uint32_t c = n == 1 ? lead : lead & (0xFFU >> (n + 1));
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return RegexReader::kNone;
    c = c << 6 | (byte(at + i) & 0x3FU);
  }
  const bool is_short = (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
  if (is_short || c > CodePointSet::kLast || (c >= 0xD800 && c <= 0xDFFF)) {
    return RegexReader::kNone;
  }
  at += n;
  return c;
}

bool is_digit(std::uint32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(std::uint32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

int digit_value(std::uint32_t c) {
  if (is_digit(c)) return static_cast<int>(c - '0');
  const std::uint32_t lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a') + 10 : -1;
}

}  // namespace

RegexReader::RegexReader(std::string_view pattern, Spelling spelling) : spelling_(spelling) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("regular expression: {} bytes; at most {} are accepted", pattern.size(),
                            kMaxPatternBytes));
  }
  for (std::size_t i = 0; i < pattern.size();) {
    characters_.push_back(decode(pattern, i));
    if (characters_.back() == kNone) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("regular expression: byte {} is no UTF-8", i));
    }
  }
}

void RegexReader::fail(ErrorCode code, std::string_view reason) const {
  throw Error(code, fmt::format("regular expression, character {}: {}", at_ + 1, reason));
}
void RegexReader::refuse(std::string_view reason) const { fail(ErrorCode::kUnsupported, reason); }
void RegexReader::mistake(std::string_view reason) const {
  fail(ErrorCode::kInvalidArgument, reason);
}

std::uint32_t RegexReader::peek(std::size_t ahead) const {
  return at_ + ahead < characters_.size() ? characters_[at_ + ahead] : kNone;
}

std::uint32_t RegexReader::take() {
  if (at_end()) mistake("it ends in the middle");
  return characters_[at_++];
}

bool RegexReader::take_if(char c) {
  if (peek() != static_cast<std::uint8_t>(c)) return false;
  ++at_;
  return true;
}

bool RegexReader::take_if(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (peek(i) != static_cast<std::uint8_t>(text[i])) return false;
  }
  at_ += text.size();
  return true;
}

std::optional<std::int64_t> RegexReader::number_ahead(std::size_t& ahead) const {
  if (!is_digit(peek(ahead))) return std::nullopt;
  std::int64_t value = 0;
  for (; is_digit(peek(ahead)); ++ahead) {
    value = std::min<std::int64_t>(value * 10 + digit_value(peek(ahead)), 1'000'000'000);
  }
  return value;
}

CodePointSet RegexReader::dot() const {
  CodePointSet line_ends = {{'\n', '\n'}};
  if (spelling_ == Spelling::kJsonString) line_ends.add({{'\r', '\r'}, {0x2028, 0x2029}});
  return line_ends.complement();
}

CodePointSet RegexReader::named_class(std::uint32_t name) const {
  CodePointSet set;
  switch (name | 0x20) {
    case 'd':
      set = {{'0', '9'}};
      break;
    case 'w':
      set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
      break;
    default:
      set = {{'\t', '\r'}, {' ', ' '}};
      if (spelling_ == Spelling::kJsonString) {
        set.add({{0xA0, 0xA0},
                 {0x1680, 0x1680},
                 {0x2000, 0x200A},
                 {0x2028, 0x2029},
                 {0x202F, 0x202F},
                 {0x205F, 0x205F},
                 {0x3000, 0x3000},
                 {0xFEFF, 0xFEFF}});
      }
  }
  return (name & 0x20) != 0 ? set : set.complement();
}

std::uint32_t RegexReader::hexadecimal(std::size_t n_digits) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < n_digits; ++i) {
    const int digit = digit_value(peek());
    if (digit < 0) mistake(fmt::format("expected {} hexadecimal digits", n_digits));
    value = value << 4 | static_cast<std::uint32_t>(digit);
    ++at_;
  }
  return value;
}

// Behind "\u".
std::uint32_t RegexReader::unicode_escape() {
  std::uint32_t c = 0;
  if (take_if('{')) {
    std::size_t n = 0;
    while (n < 8 && digit_value(peek(n)) >= 0) ++n;
    if (n == 0) mistake("expected hexadecimal digits");
    c = hexadecimal(n);
    if (!take_if('}')) mistake("expected '}'");
  } else {
    c = hexadecimal(4);
    if (c >= 0xD800 && c <= 0xDBFF && take_if("\\u")) {
      const std::uint32_t low = hexadecimal(4);
      if (low < 0xDC00 || low > 0xDFFF) mistake("half of a surrogate pair");
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (c >= 0xD800 && c <= 0xDFFF) mistake("half of a surrogate pair");
  return c;
}

CodePointSet RegexReader::escape(bool in_class) {
  const std::uint32_t name = take();
  std::uint32_t c = name;
  switch (name) {
    case 'd':
    case 'D':
    case 'w':
    case 'W':
    case 's':
    case 'S':
      return named_class(name);
    case 'n':
      c = '\n';
      break;
    case 't':
      c = '\t';
      break;
    case 'r':
      c = '\r';
      break;
    case 'f':
      c = '\f';
      break;
    case 'v':
      c = '\v';
      break;
    case 'a':
      c = '\a';
      break;
    case 'x':
      c = hexadecimal(2);
      break;
    case 'u':
      c = unicode_escape();
      break;
    case 'U':
      c = hexadecimal(8);
      break;
    case '0':
      if (is_digit(peek())) refuse("octal escapes are not supported; write \\xHH");
      c = 0;
      break;
    case 'b':
      if (!in_class) refuse("\\b (the edge of a word) is not supported");
      c = '\b';
      break;
    default:
      if (is_digit(name)) {
        refuse(fmt::format("\\{} (a back-reference) is not supported: no automaton can match it",
                           name - '0'));
      }
      if (is_letter(name)) {
        refuse(fmt::format("the escape \\{} is not supported", static_cast<char>(name)));
      }
  }
  if (c > CodePointSet::kLast) mistake("no character has this number");
  return {{c, c}};
}

void RegexReader::class_item(std::vector<CodePointRange>& ranges) {
  const auto item = [&]() -> CodePointSet {
    if (peek() == '[' && peek(1) == ':')
      refuse("POSIX classes such as [:alpha:] are not supported");
    const std::uint32_t c = take();
    return c == '\\' ? escape(/*in_class=*/true) : CodePointSet{{c, c}};
  };
  const CodePointSet first = item();
  const bool is_range = peek() == '-' && peek(1) != ']' && peek(1) != kNone;
  if (!is_range) {
    ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
    return;
  }
  take();
  const CodePointSet last = item();
  const auto is_single = [](const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  };
  if (!is_single(first) || !is_single(last)) mistake("a range needs a character at either end");
  const CodePointRange range{first.ranges()[0].first, last.ranges()[0].first};
  if (range.first > range.last) mistake("a range ends before it begins");
  ranges.push_back(range);
}

CodePointSet RegexReader::character_class() {
  const bool is_negated = take_if('^');
  std::vector<CodePointRange> ranges;
  do {
    if (at_end()) mistake("a '[' without its ']'");
    class_item(ranges);
  } while (!take_if(']'));
  const CodePointSet set(std::move(ranges));
  return is_negated ? set.complement() : set;
}

}  // namespace longhaul::forms
