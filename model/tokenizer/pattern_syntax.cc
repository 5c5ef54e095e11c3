#include "model/tokenizer/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "model/tokenizer/newer_unicode.h"
#include "model/tokenizer/unsupported.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

std::string range_text(char32_t first, char32_t last) {
  const auto a = static_cast<unsigned>(first);
  const auto b = static_cast<unsigned>(last);
  return a == b ? fmt::format("\\x{{{:x}}}", a) : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", a, b);
}

// The ranges of newer characters whose category starts with `prefix`, joined where they touch.
std::string newer_ranges(std::string_view prefix) {
  std::vector<CategoryRange> ranges;
  for (const CategoryRange& range : newer_characters()) {
    if (range.category.starts_with(prefix)) ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const CategoryRange& a, const CategoryRange& b) { return a.first < b.first; });
  std::string text;
  for (std::size_t i = 0; i < ranges.size();) {
    CategoryRange joined = ranges[i++];
    while (i < ranges.size() && ranges[i].first == joined.last + 1) joined.last = ranges[i++].last;
    text += range_text(joined.first, joined.last);
  }
  return text;
}

std::string category_body(std::string_view category) {
  return fmt::format("\\p{{{}}}{}", category, newer_ranges(category));
}

std::string word_body() {
  return fmt::format("\\p{{Alphabetic}}{}{}{}{}", category_body("L"), category_body("M"),
                     category_body("N"), category_body("Pc"));
}

// A set of characters as the inside of a PCRE2 class, or the complement of one.
struct Set {
  std::string body;
  bool complement = false;
};

class Translator {
 public:
  Translator(std::string_view text, const JsonField& field) : text_(text), field_(field) {}

  std::string run() {
    while (at_ < text_.size()) element();
    return std::move(out_);
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    refuse(field_,
           fmt::format("{} at byte {} of the pattern is not supported: {}", what, at_, text_));
  }

  std::string_view rest() const { return text_.substr(at_); }

  char32_t take() {
    if (at_ >= text_.size()) field_.fail(fmt::format("the pattern ends too early: {}", text_));
    const char32_t character = char_at(text_, at_);
    at_ += char_length(text_[at_]);
    return character;
  }

  void element() {
    switch (text_[at_]) {
      case '\\':
        escape();
        break;
      case '[':
        ++at_;
        emit_class();
        break;
      case '(':
        open_group();
        break;
      case '{':
        interval();
        break;
      default:
        out_ += text_[at_++];
    }
  }

  void emit(const Set& set) { out_ += fmt::format("[{}{}]", set.complement ? "^" : "", set.body); }

  void escape() {
    const std::size_t start = at_++;
    if (const auto set = class_escape()) return emit(*set);
    if (at_ < text_.size()) {
      switch (text_[at_]) {
        case 'b':
          ++at_;
          out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word_body());
          return;
        case 'B':
          ++at_;
          out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word_body());
          return;
        case 'A':
        case 'z':
        case 'Z':
        case 'R':
          out_ += '\\';
          out_ += text_[at_++];
          return;
        default:
          break;
      }
    }
    at_ = start + 1;
    const char32_t character = character_escape();
    out_ += range_text(character, character);
  }

  // \s and its like, after the backslash.
  std::optional<Set> class_escape() {
    if (at_ >= text_.size()) return std::nullopt;
    const char letter = text_[at_];
    switch (letter) {
      case 's':
      case 'S':
        ++at_;
        return Set{std::string(kSpaces), letter == 'S'};
      case 'w':
      case 'W':
        ++at_;
        return Set{word_body(), letter == 'W'};
      case 'd':
      case 'D':
        ++at_;
        return Set{category_body("Nd"), letter == 'D'};
      case 'h':
      case 'H':
        ++at_;
        return Set{std::string(kHexDigits), letter == 'H'};
      case 'p':
      case 'P':
        ++at_;
        return property(letter == 'P');
      default:
        return std::nullopt;
    }
  }

  Set property(bool complement) {
    if (at_ >= text_.size() || text_[at_] != '{') unsupported("a property without braces");
    const std::size_t close = text_.find('}', at_);
    if (close == std::string_view::npos)
      field_.fail(fmt::format("a property is not closed: {}", text_));
    std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    if (name.starts_with('^')) {
      complement = !complement;
      name.remove_prefix(1);
    }
    static constexpr std::array<std::string_view, 37> kCategories = {
        "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
        "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
        "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};
    if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end() ||
        name == "C" || name == "Cn") {
      unsupported(fmt::format("the property \"{}\"", name));
    }
    at_ = close + 1;
    return Set{category_body(name), complement};
  }

  // One character, after the backslash.
  char32_t character_escape() {
    const char32_t letter = take();
    switch (letter) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1B;
      case 'u':
        return hex(4, 4);
      case 'x':
        if (rest().starts_with('{')) {
          ++at_;
          const char32_t character = hex(1, 8);
          if (take() != '}') field_.fail(fmt::format("\\x{{...}} is not closed: {}", text_));
          return character;
        }
        return hex(1, 2);
      default:
        break;
    }
    const bool alphanumeric = (letter >= '0' && letter <= '9') ||
                              (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
    if (alphanumeric) {
      at_ -= 1;
      unsupported(fmt::format("\\{}", static_cast<char>(letter)));
    }
    return letter;
  }

  char32_t hex(int min_digits, int max_digits) {
    char32_t value = 0;
    int n = 0;
    for (; n < max_digits && at_ < text_.size(); ++n, ++at_) {
      const char c = text_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value << 4 | static_cast<char32_t>(digit);
    }
    const bool surrogate = value >= 0xD800 && value < 0xE000;
    if (n < min_digits || value > 0x10FFFF || surrogate || (max_digits == 2 && value > 0x7F))
      unsupported("this \\x or \\u escape");
    return value;
  }

  // After the opening bracket. Complements inside a class become alternatives beside it, since
  // "not this set" plus extra ranges has no spelling inside one.
  void emit_class() {
    const bool negated = rest().starts_with('^');
    if (negated) ++at_;
    if (rest().starts_with(']')) unsupported("a class that is empty or starts with ]");
    std::string body;
    std::vector<std::string> complements;
    while (true) {
      if (at_ >= text_.size()) field_.fail(fmt::format("a class is not closed: {}", text_));
      if (text_[at_] == ']') break;
      class_item(body, complements);
    }
    ++at_;
    if (complements.empty()) {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", body);
      return;
    }
    out_ += "(?:";
    for (const std::string& set : complements) {
      out_ += negated ? fmt::format("(?![^{}])", set) : fmt::format("[^{}]|", set);
    }
    if (negated) {
      out_ += body.empty() ? "(?s:.)" : fmt::format("[^{}]", body);
    } else {
      out_ += body.empty() ? "(?!)" : fmt::format("[{}]", body);
    }
    out_ += ')';
  }

  void class_item(std::string& body, std::vector<std::string>& complements) {
    if (text_[at_] == '[') unsupported("a class inside a class");
    if (rest().starts_with("&&")) unsupported("the intersection of classes");
    if (text_[at_] == '\\') {
      ++at_;
      if (auto set = class_escape()) {
        if (set->complement) {
          complements.push_back(std::move(set->body));
        } else {
          body += set->body;
        }
        if (rest().starts_with('-') && !rest().starts_with("-]"))
          unsupported("a range after a set");
        return;
      }
      --at_;
    }
    const char32_t first = class_character();
    char32_t last = first;
    if (rest().starts_with('-') && !rest().starts_with("-]")) {
      ++at_;
      if (rest().starts_with('[')) unsupported("a range that ends in a class");
      last = class_character();
      if (last < first) field_.fail(fmt::format("a range runs backwards: {}", text_));
    }
    body += range_text(first, last);
  }

  char32_t class_character() {
    const char32_t character = take();
    return character == '\\' ? character_escape() : character;
  }

  void open_group() {
    if (!rest().starts_with("(?")) {
      ++at_;
      out_ += "(?:";  // nothing ever asks for a group's text
      return;
    }
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!rest().starts_with(kind)) continue;
      at_ += kind.size();
      out_ += kind;
      return;
    }
    option_group();
  }

  // (?i:..), (?m:..), (?-i:..); or (?i) at the very start.
  void option_group() {
    const bool first = at_ == 0;
    std::size_t end = at_ + 2;
    std::string options;
    for (; end < text_.size() && (text_[end] == 'i' || text_[end] == 'm' || text_[end] == '-');
         ++end)
      options += text_[end] == 'm' ? 's' : text_[end];
    const bool scoped = end < text_.size() && text_[end] == ':';
    const bool whole = first && end < text_.size() && text_[end] == ')';
    if (options.empty() || (!scoped && !whole)) unsupported("this kind of group");
    out_ += fmt::format("(?{}{}", options, text_[end]);
    at_ = end + 1;
  }

  void interval() {
    std::size_t end = at_ + 1;
    std::string low, high;
    const auto digits = [&](std::string& number) {
      while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') number += text_[end++];
    };
    digits(low);
    const bool comma = end < text_.size() && text_[end] == ',';
    if (comma) {
      ++end;
      digits(high);
    }
    const bool valid =
        end < text_.size() && text_[end] == '}' && !(low.empty() && (high.empty() || !comma));
    if (!valid) {  // both read such a brace as itself
      out_ += "\\{";
      ++at_;
      return;
    }
    ++end;
    if (end < text_.size() && (text_[end] == '+' || (!comma && text_[end] == '?')))
      unsupported(
          "a repeated interval");  // possessive or lazy for one, a second loop for the other
    out_ += comma ? fmt::format("{{{},{}}}", low.empty() ? "0" : low, high)
                  : fmt::format("{{{}}}", low);
    at_ = end;
  }

  std::string_view text_;
  const JsonField& field_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string to_pcre2(std::string_view expression, const JsonField& field) {
  return Translator(expression, field).run();
}

}  // namespace longhaul::tokenization
