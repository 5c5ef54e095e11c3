// Regular expressions as languages. What all common dialects share:
//
//   characters (UTF-8)  .  [abc] [^a-z]  \d \w \s \D \W \S  \n \t \r \f \v \a \0 \xHH \uHHHH \u{H}
//   \. ab  a|b  (a)  (?:a)  (?<name>a)  (?P<name>a)  a*  a+  a?  a{3}  a{3,}  a{,5}  a{3,5}
//
// Lazy quantifiers (a*?) mean the same words as greedy ones. \d and \w are ASCII. ^, \A and $, \Z
// may stand at the ends of the whole expression and of its outermost alternatives. Refused by name
// are those that no automaton is for or that mean different things elsewhere: anchors in the
// middle, \b, look-around, back-references, possessive quantifiers and atomic groups, flags,
// \p{..}, POSIX classes.
#pragma once
#include <string_view>

#include "model/forms/code_points.h"
#include "model/forms/expressions.h"

namespace longhaul::forms {

enum class RegexMatch {
  kWhole,     // the words are those that match from end to end
  kAnywhere,  // ... that hold a match, as JSON Schema's `pattern` says
};

// What a character class of these names holds, in Python's re (ASCII) and in ECMAScript (for
// Spelling::kJsonString). Throws kInvalidArgument or kUnsupported with the place in `pattern`.
ExpressionId parse_regex(Expressions& expressions, std::string_view pattern, Spelling spelling,
                         RegexMatch match);

}  // namespace longhaul::forms
