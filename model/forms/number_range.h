// JSON numbers between two bounds, as languages over their digits.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "model/forms/expressions.h"

namespace longhaul::forms {

// A decimal number, exactly.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros
};
// Of a JSON number (a double in its shortest form). nullopt: more than 18 digits before the point
// or 17 behind it.
std::optional<Decimal> decimal_of(const Json& number);

struct NumberBound {
  Decimal value;
  bool is_excluded = false;
};
enum class NumberKind { kInteger, kNumber };

// The numbers from `low` to `high`, written without exponent, with at most 18 digits before the
// point and 17 behind it. kNothing when there is none.
ExpressionId numbers_between(Expressions& expressions, NumberKind kind,
                             const std::optional<NumberBound>& low,
                             const std::optional<NumberBound>& high);

}  // namespace longhaul::forms
