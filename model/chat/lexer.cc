#include "model/chat/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/chat/string_literal.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

constexpr std::array<std::string_view, 6> kLongOperators = {"//", "**", "==", "!=", "<=", ">="};
constexpr std::string_view kShortOperators = "+-*/%~[](){}<>=.:|,";

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_ascii_digit(c); }

std::size_t spaces_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size()) {
    const Character c = character_at(text, end);
    if (!is_python_space(c.code)) break;
    end += c.length;
  }
  return end - at;
}

// "\r\n" and "\r" are "\n"; one line break at the end of the template is no part of it.
std::string normalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view source)
      : text_(normalized(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) outside();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  bool comes(std::string_view what) const { return rest().starts_with(what); }

  [[noreturn]] void fail(std::string_view reason) const {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}:{}: {}", source_, line_, reason));
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void skip(std::size_t n) {
    const auto from = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(from, from + static_cast<std::ptrdiff_t>(n), '\n'));
    at_ += n;
    if (n > 0) line_starts_ = text_[at_ - 1] == '\n';
  }

  // Text up to the next tag, and the tag.
  void outside() {
    std::size_t begin = at_;
    while (true) {
      begin = text_.find('{', begin);
      if (begin == std::string::npos || begin + 1 == text_.size()) {
        add_text(text_.size(), /*sign=*/'+', /*may_strip=*/false);
        return;
      }
      if (const char c = text_[begin + 1]; c == '{' || c == '%' || c == '#') break;
      ++begin;
    }
    const char kind = text_[begin + 1];
    const char sign = begin + 2 < text_.size() ? text_[begin + 2] : ' ';
    add_text(begin, sign, /*may_strip=*/kind != '{');
    skip(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      add(TokenKind::kPrintBegin, "{{");
      inside(/*is_block=*/false);
    } else if (const std::size_t n = raw_tag_length("raw"); n > 0) {
      skip(n);
      raw();
    } else {
      add(TokenKind::kBlockBegin, "{%");
      inside(/*is_block=*/true);
    }
  }

  // The text before a tag at `end`: "-" strips it; else the blanks of a line that the tag begins
  // go.
  void add_text(std::size_t end, char sign, bool may_strip) {
    std::string text = text_.substr(at_, end - at_);
    if (sign == '-') {
      text.resize(stripped(text, Side::kRight).end);
    } else if (may_strip && sign != '+') {
      const std::size_t line_break = text.rfind('\n');
      const std::size_t line = line_break == std::string::npos ? 0 : line_break + 1;
      if ((line > 0 || line_starts_) && spaces_at(text, line) == text.size() - line)
        text.resize(line);
    }
    if (!text.empty()) add(TokenKind::kText, std::move(text));
    skip(end - at_);
  }

  // Past the end of a block or comment: "-" takes all white space after it, else one line break
  // goes.
  void end_tag(std::size_t length, char sign) {
    skip(length);
    if (sign == '-') {
      skip(spaces_at(text_, at_));
    } else if (sign != '+' && comes("\n")) {
      skip(1);
    }
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail("a comment {# has no end #}");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    skip(end - at_);
    end_tag(2, sign);
  }

  // Of a tag `name` whose "{%" and sign were read: the length up to the end of "%}", 0 if it is
  // another one.
  std::size_t raw_tag_length(std::string_view name) const {
    std::size_t at = at_ + spaces_at(text_, at_);
    if (!std::string_view(text_).substr(at).starts_with(name)) return 0;
    at += name.size();
    at += spaces_at(text_, at);
    const std::string_view end = std::string_view(text_).substr(at);
    if (end.starts_with("-%}")) return at + 3 + spaces_at(text_, at + 3) - at_;
    if (end.starts_with("%}")) return at + 2 - at_;
    return 0;
  }

  void raw() {
    for (std::size_t begin = text_.find("{%", at_); begin != std::string::npos;
         begin = text_.find("{%", begin + 2)) {
      const char sign = begin + 2 < text_.size() ? text_[begin + 2] : ' ';
      const std::size_t here = at_;
      at_ = begin + (sign == '-' || sign == '+' ? 3 : 2);
      const std::size_t length = raw_tag_length("endraw");
      const std::size_t tag_end = at_ + length;
      at_ = here;
      if (length == 0) continue;
      add_text(begin, sign, /*may_strip=*/true);
      skip(tag_end - at_);
      if (text_[at_ - 1] == '}' && text_[at_ - 3] != '-' && comes("\n")) skip(1);
      return;
    }
    fail("{% raw %} has no {% endraw %}");
  }

  // The inside of a tag up to its end.
  void inside(bool is_block) {
    open_.clear();
    while (true) {
      skip(spaces_at(text_, at_));
      if (at_ >= text_.size()) fail(is_block ? "{% has no %}" : "{{ has no }}");
      if (open_.empty() && try_end(is_block)) return;
      token();
    }
  }

  bool try_end(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    const char first = text_[at_];
    const bool has_sign = first == '-' || (first == '+' && is_block);
    if (!rest().substr(has_sign ? 1 : 0).starts_with(end)) return false;
    add(is_block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, std::string(end));
    if (is_block) {
      end_tag(has_sign ? 3 : 2, has_sign ? first : ' ');
    } else {
      skip(has_sign ? 3 : 2);
      if (has_sign) skip(spaces_at(text_, at_));
    }
    return true;
  }

  void token() {
    const char c = text_[at_];
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_name_part(text_[end])) ++end;
      add(TokenKind::kName, text_.substr(at_, end - at_));
      skip(end - at_);
    } else if (is_ascii_digit(c)) {
      number();
    } else if (c == '"' || c == '\'') {
      const std::size_t length = string_literal_length(rest());
      if (length == 0) fail("a string has no end");
      add(TokenKind::kString, unescaped(rest().substr(1, length - 2)));
      skip(length);
    } else {
      operator_token();
    }
  }

  void number() {
    std::size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() && (is_ascii_digit(text_[end]) || text_[end] == '_')) ++end;
    };
    digits();
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    const auto digit_at = [&](std::size_t i) {
      return i < text_.size() && is_ascii_digit(text_[i]);
    };
    bool is_float = false;
    if (!after_dot && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const bool has_sign =
          end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
      if (digit_at(end + (has_sign ? 2 : 1))) {
        is_float = true;
        end += has_sign ? 2 : 1;
        digits();
      }
    }
    if (end < text_.size() && is_name_start(text_[end])) fail("a number is followed by a letter");
    std::string digits_only = text_.substr(at_, end - at_);
    std::erase(digits_only, '_');
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, digits_only);
    skip(end - at_);
  }

  void operator_token() {
    for (const std::string_view op : kLongOperators) {
      if (!comes(op)) continue;
      add(TokenKind::kOperator, std::string(op));
      return skip(2);
    }
    const char c = text_[at_];
    if (kShortOperators.find(c) == std::string_view::npos)
      fail(fmt::format("unexpected character \"{}\"",
                       rest().substr(0, character_at(text_, at_).length)));
    track_braces(c);
    add(TokenKind::kOperator, std::string(1, c));
    skip(1);
  }

  // "}}" inside braces ends no tag.
  void track_braces(char c) {
    if (c == '(' || c == '[' || c == '{') {
      open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty() || open_.back() != c) fail(fmt::format("unexpected \"{}\"", c));
      open_.pop_back();
    }
  }

  std::string text_;
  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what was read last ended a line
  std::string open_;         // the braces that are to come
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, std::string_view source) {
  return Lexer(text, source).run();
}

}  // namespace longhaul::chat
