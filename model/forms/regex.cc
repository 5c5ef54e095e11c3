#include "model/forms/regex.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "model/forms/regex_reader.h"

namespace longhaul::forms {
namespace {

constexpr int kMaxGroupDepth = 200;
constexpr std::int64_t kMaxRepeats = 1'000'000;

class RegexParser {
 public:
  RegexParser(Expressions& expressions, std::string_view pattern, Spelling spelling,
              RegexMatch match)
      : expressions_(expressions), reader_(pattern, spelling), spelling_(spelling), match_(match) {}

  ExpressionId parse() {
    const ExpressionId result = alternatives(0);
    if (!reader_.at_end()) reader_.mistake("a ')' without its '('");
    return result;
  }

 private:
  struct Count {
    std::int32_t min = 0;
    std::int32_t max = 0;
  };

  ExpressionId alternatives(int depth) {
    if (depth > kMaxGroupDepth) reader_.mistake("groups are nested too deeply");
    std::vector<ExpressionId> ways;
    do {
      ways.push_back(depth == 0 ? outermost_sequence() : sequence(depth));
    } while (reader_.take_if('|'));
    return expressions_.either(std::move(ways));
  }

  // With what may stand before and behind a match.
  ExpressionId outermost_sequence() {
    bool begins_here = match_ == RegexMatch::kWhole;
    while (reader_.take_if('^') || reader_.take_if("\\A")) begins_here = true;
    const ExpressionId match = sequence(0);
    bool ends_here = match_ == RegexMatch::kWhole;
    while (reader_.take_if('$') || reader_.take_if("\\Z") || reader_.take_if("\\z")) {
      ends_here = true;
    }
    if (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') refuse_anchor();
    if (begins_here && ends_here) return match;
    const ExpressionId anything = expressions_.repeat(
        one_of(expressions_, CodePointSet::all(), spelling_), 0, Expression::kNoMax);
    return expressions_.sequence(std::vector<ExpressionId>{begins_here ? kEmpty : anything, match,
                                                           ends_here ? kEmpty : anything});
  }

  [[noreturn]] void refuse_anchor() {
    reader_.refuse(
        "^, $, \\A and \\Z are supported at the ends of the expression and of its outermost "
        "alternatives only");
  }

  bool at_anchor() const {
    const std::uint32_t c = reader_.peek();
    const std::uint32_t escaped = c == '\\' ? reader_.peek(1) : RegexReader::kNone;
    return c == '^' || c == '$' || escaped == 'A' || escaped == 'Z' || escaped == 'z';
  }

  ExpressionId sequence(int depth) {
    std::vector<ExpressionId> parts;
    while (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      if (at_anchor()) {
        if (depth == 0) break;
        refuse_anchor();
      }
      parts.push_back(repeated(depth));
    }
    return expressions_.sequence(parts);
  }

  ExpressionId repeated(int depth) {
    const ExpressionId body = atom(depth);
    const std::optional<Count> count = quantifier();
    if (!count) return body;
    if (reader_.peek() == '+') reader_.refuse("possessive quantifiers are not supported");
    reader_.take_if('?');  // lazy: the same words
    if (quantifier()) reader_.mistake("a quantifier behind a quantifier; use a group");
    return expressions_.repeat(body, count->min, count->max);
  }

  std::optional<Count> quantifier() {
    if (reader_.take_if('*')) return Count{0, Expression::kNoMax};
    if (reader_.take_if('+')) return Count{1, Expression::kNoMax};
    if (reader_.take_if('?')) return Count{0, 1};
    return counted();
  }

  // {3} {3,} {,5} {3,5}; anything else that begins with a brace is text.
  std::optional<Count> counted() {
    if (reader_.peek() != '{') return std::nullopt;
    std::size_t ahead = 1;
    const std::optional<std::int64_t> min = reader_.number_ahead(ahead);
    std::optional<std::int64_t> max = min;
    if (reader_.peek(ahead) == ',') {
      ++ahead;
      max = reader_.number_ahead(ahead);
      if (!min && !max) return std::nullopt;
    } else if (!min) {
      return std::nullopt;
    }
    const bool has_max = max.has_value();
    if (reader_.peek(ahead) != '}') return std::nullopt;
    if (min.value_or(0) > kMaxRepeats || max.value_or(0) > kMaxRepeats) {
      reader_.mistake(fmt::format("counts end at {}", kMaxRepeats));
    }
    if (has_max && *max < min.value_or(0)) reader_.mistake("a count's end lies before its begin");
    reader_.skip(ahead + 1);
    return Count{static_cast<std::int32_t>(min.value_or(0)),
                 has_max ? static_cast<std::int32_t>(*max) : Expression::kNoMax};
  }

  ExpressionId atom(int depth) {
    switch (reader_.peek()) {
      case '(':
        reader_.take();
        return group(depth);
      case '[':
        reader_.take();
        return one_of(expressions_, reader_.character_class(), spelling_);
      case '.':
        reader_.take();
        return one_of(expressions_, reader_.dot(), spelling_);
      case '\\':
        reader_.take();
        return one_of(expressions_, reader_.escape(/*in_class=*/false), spelling_);
      case '*':
      case '+':
      case '?':
        reader_.mistake("nothing to repeat");
      default: {
        const std::uint32_t c = reader_.take();
        return one_of(expressions_, {{c, c}}, spelling_);
      }
    }
  }

  ExpressionId group(int depth) {
    if (reader_.take_if('?')) group_kind();
    const ExpressionId result = alternatives(depth + 1);
    if (!reader_.take_if(')')) reader_.mistake("a '(' without its ')'");
    return result;
  }

  // What stands between "(?" and the group's content.
  void group_kind() {
    for (const std::string_view look : {"=", "!", "<=", "<!"}) {
      if (reader_.take_if(look)) {
        reader_.refuse(fmt::format("(?{} (look-around) is not supported", look));
      }
    }
    if (reader_.take_if(':')) return;
    if (reader_.take_if("P<") || reader_.take_if('<')) {
      while (reader_.take() != '>') {
      }
      return;
    }
    const std::uint32_t kind = reader_.peek();
    reader_.refuse(fmt::format("groups that begin with (?{} are not supported",
                               kind < 0x7F && kind >= 0x20 ? static_cast<char>(kind) : ' '));
  }

  Expressions& expressions_;
  RegexReader reader_;
  Spelling spelling_;
  RegexMatch match_;
};

}  // namespace

ExpressionId parse_regex(Expressions& expressions, std::string_view pattern, Spelling spelling,
                         RegexMatch match) {
  return RegexParser(expressions, pattern, spelling, match).parse();
}

}  // namespace longhaul::forms
