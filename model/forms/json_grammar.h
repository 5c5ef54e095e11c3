// JSON texts (RFC 8259) as languages. Between the parts of an object or list may stand nothing, one
// space, or a line break with up to 32 blanks; never before the text or behind it, and not before a
// comma or colon: an answer cannot go on for ever with blanks. Numbers have at most 18 digits
// before the point, 17 behind it and 2 in the exponent, so every reader takes them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/forms/expressions.h"

namespace longhaul::forms {

// How deep rules may nest: any values inside any values, `$ref` inside `$ref`.
inline constexpr std::int32_t kMaxLevels = 32;

struct JsonMember {
  ExpressionId key = kNothing;  // with its quotes
  ExpressionId value = kNothing;
  bool is_required = false;
};
struct JsonList {
  std::vector<ExpressionId> first;  // of the elements at the front, one each
  ExpressionId others = kNothing;   // of all behind them
  std::int32_t min = 0;             // elements
  std::int32_t max = Expression::kNoMax;
};
// Characters of a string; an escape or a pair of them that stands for one character counts as one.
struct JsonLength {
  std::int32_t min = 0;
  std::int32_t max = Expression::kNoMax;
};

// Makes pieces of grammar in `expressions`, which must outlive it.
class JsonGrammar {
 public:
  explicit JsonGrammar(Expressions& expressions);

  ExpressionId any_value();  // nested values take a level each
  ExpressionId any_object();
  ExpressionId any_list();
  ExpressionId string(const JsonLength& length = {});
  // A string that `content` spells, which is written as Spelling::kJsonString says.
  ExpressionId string_of(ExpressionId content);
  // Any key but these; spelled as Spelling::kJsonString says, so that no escape hides one of them.
  ExpressionId key_other_than(const std::vector<std::string>& keys);
  ExpressionId key(std::string_view text);
  ExpressionId integer();
  ExpressionId number();
  ExpressionId constant(const Json& value);

  // Members in this order; those that are not required may be missing. Then any number of
  // `others` (kNothing: none).
  ExpressionId object(const std::vector<JsonMember>& members, const JsonMember& others);
  ExpressionId list(const JsonList& elements);

 private:
  ExpressionId literal(std::string_view text) { return expressions_.literal(text); }
  ExpressionId join(std::initializer_list<ExpressionId> parts);
  ExpressionId string_character();

  Expressions& expressions_;
  ExpressionId blank_;
  ExpressionId comma_;  // with what may follow it
  std::optional<std::int32_t> any_value_rule_;
};

}  // namespace longhaul::forms
