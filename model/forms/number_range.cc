#include "model/forms/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "model/forms/automaton.h"

namespace longhaul::forms {
namespace {

constexpr std::int32_t kMaxWhole = 18;
constexpr std::int32_t kMaxFraction = 17;
constexpr std::int32_t kMaxRangeStates = 20'000;

// Numbers without a sign. `digits` of a bound are compared from the front: the first one that
// differs decides.
class Magnitudes {
 public:
  Magnitudes(Expressions& expressions, NumberKind kind) : expressions_(expressions), kind_(kind) {}

  ExpressionId all() {
    return either({text("0"), join({digits('1', '9', 1, 1), digits('0', '9', 0, kMaxWhole - 1)})},
                  any_fraction());
  }

  ExpressionId at_least(const Decimal& bound, bool is_excluded) {
    return beside(bound, fraction_from(bound.fraction, is_excluded), /*above=*/true);
  }
  ExpressionId at_most(const Decimal& bound, bool is_excluded) {
    return beside(bound, fraction_to(bound.fraction, is_excluded), /*above=*/false);
  }

 private:
  ExpressionId text(std::string_view t) { return expressions_.literal(t); }
  ExpressionId join(std::vector<ExpressionId> parts) { return expressions_.sequence(parts); }
  ExpressionId either(std::vector<ExpressionId> ways, ExpressionId behind) {
    return expressions_.concat(expressions_.either(std::move(ways)), behind);
  }
  ExpressionId digits(char first, char last, std::int32_t min, std::int32_t max) {
    if (first > last || max < min) return kNothing;
    return expressions_.repeat(
        expressions_.byte_range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last)),
        min, max);
  }
  ExpressionId any_fraction() {
    if (kind_ == NumberKind::kInteger) return kEmpty;
    return expressions_.optional(join({text("."), digits('0', '9', 1, kMaxFraction)}));
  }

  // Numbers whose whole part lies above (below) the bound's, and those with the same whole part and
  // such a fraction.
  ExpressionId beside(const Decimal& bound, ExpressionId fraction, bool above) {
    const std::string& whole = bound.whole;
    const auto n = static_cast<std::int32_t>(whole.size());
    std::vector<ExpressionId> ways;
    if (above) {
      ways.push_back(join({digits('1', '9', 1, 1), digits('0', '9', n, kMaxWhole - 1)}));
    } else if (n > 1) {
      ways.push_back(text("0"));
      ways.push_back(join({digits('1', '9', 1, 1), digits('0', '9', 0, n - 2)}));
    }
    for (std::int32_t i = 0; i < n; ++i) {
      const char c = whole[static_cast<std::size_t>(i)];
      const char least = i == 0 && n > 1 ? '1' : '0';
      const ExpressionId digit = above ? digits(static_cast<char>(c + 1), '9', 1, 1)
                                       : digits(least, static_cast<char>(c - 1), 1, 1);
      ways.push_back(join({text(whole.substr(0, static_cast<std::size_t>(i))), digit,
                           digits('0', '9', n - 1 - i, n - 1 - i)}));
    }
    return expressions_.either(
        {either(std::move(ways), any_fraction()), join({text(whole), fraction})});
  }

  // The point and digits, or nothing, that are at least (more than) 0.`bound`.
  ExpressionId fraction_from(const std::string& bound, bool is_excluded) {
    if (kind_ == NumberKind::kInteger) return bound.empty() && !is_excluded ? kEmpty : kNothing;
    if (bound.empty() && !is_excluded) return any_fraction();
    const auto n = static_cast<std::int32_t>(bound.size());
    std::vector<ExpressionId> ways;
    for (std::int32_t i = 0; i < n; ++i) {
      const char c = bound[static_cast<std::size_t>(i)];
      ways.push_back(join({text(bound.substr(0, static_cast<std::size_t>(i))),
                           digits(static_cast<char>(c + 1), '9', 1, 1),
                           digits('0', '9', 0, kMaxFraction - 1 - i)}));
    }
    const std::int32_t left = kMaxFraction - n;
    if (!is_excluded) {
      ways.push_back(join({text(bound), digits('0', '9', 0, left)}));
    } else if (left > 0) {
      // Something that is not zero follows: any digits, at least one of them from 1 to 9.
      for (std::int32_t zeros = 0; zeros < left; ++zeros) {
        ways.push_back(join({text(bound), digits('0', '0', zeros, zeros), digits('1', '9', 1, 1),
                             digits('0', '9', 0, left - zeros - 1)}));
      }
    }
    return join({text("."), expressions_.either(std::move(ways))});
  }

  ExpressionId fraction_to(const std::string& bound, bool is_excluded) {
    if (kind_ == NumberKind::kInteger) return bound.empty() && is_excluded ? kNothing : kEmpty;
    const auto n = static_cast<std::int32_t>(bound.size());
    std::vector<ExpressionId> ways;
    for (std::int32_t i = 0; i < n; ++i) {
      const char c = bound[static_cast<std::size_t>(i)];
      const std::string before = bound.substr(0, static_cast<std::size_t>(i));
      ways.push_back(join({text(before), digits('0', static_cast<char>(c - 1), 1, 1),
                           digits('0', '9', 0, kMaxFraction - 1 - i)}));
      if (i > 0) ways.push_back(text(before));
    }
    if (!is_excluded) {
      ways.push_back(join({text(bound), digits('0', '0', n == 0 ? 1 : 0, kMaxFraction - n)}));
    }
    const ExpressionId some = join({text("."), expressions_.either(std::move(ways))});
    return bound.empty() && is_excluded ? kNothing : expressions_.optional(some);
  }

  Expressions& expressions_;
  NumberKind kind_;
};

using Bound = std::optional<NumberBound>;

Machine machine_of(NumberKind kind, const auto& make) {
  auto own = std::make_unique<Expressions>(std::size_t{kMaxRangeStates} * 16);
  const ExpressionId start = make(Magnitudes(*own, kind));
  Automaton automaton(std::move(own));
  return to_machine(automaton, start, kMaxRangeStates);
}

// `low` and `high` are bounds of the magnitude; their signs are not looked at.
ExpressionId magnitudes_between(Expressions& expressions, NumberKind kind, const Bound& low,
                                const Bound& high) {
  if (low && high) {
    const Machine above =
        machine_of(kind, [&](Magnitudes m) { return m.at_least(low->value, low->is_excluded); });
    const Machine below =
        machine_of(kind, [&](Magnitudes m) { return m.at_most(high->value, high->is_excluded); });
    return expressions.machine(intersection(above, below, kMaxRangeStates));
  }
  Magnitudes all(expressions, kind);
  if (low) return all.at_least(low->value, low->is_excluded);
  if (high) return all.at_most(high->value, high->is_excluded);
  return all.all();
}

bool is_zero(const Decimal& d) { return d.whole == "0" && d.fraction.empty(); }

}  // namespace

std::optional<Decimal> decimal_of(const Json& number) {
  std::string digits;
  if (const auto* integer = std::get_if<std::int64_t>(&number.value())) {
    digits = fmt::format("{}", *integer);
  } else {
    digits = fmt::format("{}", std::get<double>(number.value()));
  }
  Decimal result;
  if (digits.starts_with('-')) {
    result.is_negative = true;
    digits = digits.substr(1);
  }
  std::int64_t exponent = 0;
  if (const std::size_t e = digits.find('e'); e != std::string::npos) {
    const char* begin = digits.data() + e + (digits[e + 1] == '+' ? 2 : 1);
    std::from_chars(begin, digits.data() + digits.size(), exponent);
    digits.resize(e);
  }
  if (exponent < -400 || exponent > 400) return std::nullopt;
  auto point = static_cast<std::int64_t>(digits.find('.'));
  if (digits.find('.') == std::string::npos) {
    point = static_cast<std::int64_t>(digits.size());
  } else {
    digits.erase(static_cast<std::size_t>(point), 1);
  }
  point += exponent;
  if (point < 0) {
    digits = fmt::format("{}{}", std::string(static_cast<std::size_t>(-point), '0'), digits);
    point = 0;
  }
  if (static_cast<std::size_t>(point) > digits.size()) {
    digits.resize(static_cast<std::size_t>(point), '0');
  }
  result.whole = digits.substr(0, static_cast<std::size_t>(point));
  result.fraction = digits.substr(static_cast<std::size_t>(point));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole.assign(1, '0');
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.whole.size() > kMaxWhole || result.fraction.size() > kMaxFraction) return std::nullopt;
  return result;
}

ExpressionId numbers_between(Expressions& expressions, NumberKind kind, const Bound& low,
                             const Bound& high) {
  const auto is_below_zero = [](const NumberBound& b) {
    return b.value.is_negative && !is_zero(b.value);
  };
  // A negative number is at least -5 when its magnitude is at most 5.
  ExpressionId positive = kNothing;
  if (!high || !is_below_zero(*high)) {
    positive =
        magnitudes_between(expressions, kind, low && !is_below_zero(*low) ? low : Bound(), high);
  }
  ExpressionId negative = kNothing;
  if (!low || is_below_zero(*low)) {
    // 0 itself is written without a sign, unless zero is allowed anyway.
    Bound least = high;
    if (!high || !is_below_zero(*high)) least = NumberBound{.value = {}, .is_excluded = true};
    negative = magnitudes_between(expressions, kind, least, low);
  }
  return expressions.either({positive, expressions.concat(expressions.literal("-"), negative)});
}

}  // namespace longhaul::forms
