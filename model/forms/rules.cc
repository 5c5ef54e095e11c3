// Rules of Expressions: recursion with a bounded number of levels, and which rules have words.
#include <utility>

#include "base/error.h"
#include "model/forms/expressions.h"

namespace longhaul::forms {

using Kind = Expression::Kind;

namespace {
constexpr std::int8_t kUnknown = -1;
}  // namespace

std::int32_t Expressions::add_rule() {
  check_room(rules_.size());
  rules_.push_back(kNothing);
  return static_cast<std::int32_t>(rules_.size()) - 1;
}

void Expressions::set_rule(std::int32_t rule, ExpressionId body) {
  LONGHAUL_ASSERT(!is_nullable(body));
  rules_[static_cast<std::size_t>(rule)] = body;
}

ExpressionId Expressions::rule(std::int32_t rule, std::int32_t levels) {
  return add({.kind = Kind::kRule,
              .has_open_rules = levels == Expression::kAnyLevel,
              .a = rule,
              .b = levels});
}

ExpressionId Expressions::body_of(ExpressionId id) {
  const Expression e = (*this)[id];
  return with_levels(rules_[static_cast<std::size_t>(e.a)], e.b - 1);
}

ExpressionId Expressions::with_levels(ExpressionId id, std::int32_t levels) {
  if (!(*this)[id].has_open_rules) return id;
  const std::uint64_t key =
      static_cast<std::uint64_t>(id) << 32 | static_cast<std::uint32_t>(levels);
  if (const auto found = levelled_.find(key); found != levelled_.end()) return found->second;
  const Expression node = (*this)[id];
  const ExpressionId result =
      node.kind == Kind::kConcat ? levelled_chain(id, levels) : levelled(node, levels);
  levelled_.emplace(key, result);
  return result;
}

// Without recursion along the chain: literals and lists of members are long.
ExpressionId Expressions::levelled_chain(ExpressionId id, std::int32_t levels) {
  std::vector<ExpressionId> parts;
  for (; (*this)[id].kind == Kind::kConcat; id = (*this)[id].b) parts.push_back((*this)[id].a);
  parts.push_back(id);
  for (ExpressionId& part : parts) part = with_levels(part, levels);
  return sequence(parts);
}

ExpressionId Expressions::levelled(const Expression& node, std::int32_t levels) {
  switch (node.kind) {
    case Kind::kEither: {
      const auto those = members(node);
      std::vector<ExpressionId> wanted(those.begin(), those.end());
      for (ExpressionId& member : wanted) member = with_levels(member, levels);
      return either(std::move(wanted));
    }
    case Kind::kRepeat:
      return repeat(with_levels(node.a, levels), node.min, node.max);
    case Kind::kSealed:
      return sealed(with_levels(node.a, levels));
    case Kind::kRule:
      if (fewest_levels_[static_cast<std::size_t>(node.a)] > levels) return kNothing;
      return rule(node.a, levels);
    case Kind::kNoWord:
    case Kind::kEmptyWord:
    case Kind::kBytes:
    case Kind::kConcat:
    case Kind::kMachine:
      break;
  }
  throw Error(ErrorCode::kInternal, "an expression without rules was given levels");
}

// `known` holds for every expression what was found already, and for rules what holds one level
// below.
bool Expressions::is_known_to_have_words(ExpressionId id, std::vector<std::int8_t>& known) const {
  std::vector<ExpressionId> chain;
  bool has_words = true;
  for (bool goes_on = true; goes_on && has_words;) {
    const Expression& e = (*this)[id];
    std::int8_t& mine = known[static_cast<std::size_t>(id)];
    goes_on = false;
    if (mine != kUnknown) {
      has_words = mine != 0;
    } else if (e.kind == Kind::kConcat) {
      chain.push_back(id);
      has_words = is_known_to_have_words(e.a, known);
      id = e.b;
      goes_on = true;
    } else {
      if (e.kind == Kind::kEither) {
        has_words = false;
        for (const ExpressionId member : members(e)) {
          has_words = has_words || is_known_to_have_words(member, known);
        }
      } else if (e.kind == Kind::kRepeat || e.kind == Kind::kSealed) {
        has_words = e.is_nullable || is_known_to_have_words(e.a, known);
      }
      mine = has_words ? 1 : 0;
    }
  }
  for (const ExpressionId link : chain) {
    // Of a chain with a dead part nothing is known of the links behind that part: they are not
    // marked.
    if (has_words) known[static_cast<std::size_t>(link)] = 1;
  }
  if (!has_words && !chain.empty()) known[static_cast<std::size_t>(chain.front())] = 0;
  return has_words;
}

void Expressions::find_fewest_levels(std::int32_t max_levels) {
  const std::int32_t never = max_levels + 1;
  fewest_levels_.assign(rules_.size(), never);
  for (std::int32_t levels = 0; levels <= max_levels; ++levels) {
    std::vector<std::int8_t> known(nodes_.size(), kUnknown);
    known[kNothing] = 0;
    for (std::size_t id = 0; id < nodes_.size(); ++id) {
      const Expression& e = nodes_[id];
      if (e.kind != Kind::kRule) continue;
      known[id] = fewest_levels_[static_cast<std::size_t>(e.a)] < levels ? 1 : 0;
    }
    bool found_one = false;
    std::vector<std::int32_t> now = fewest_levels_;
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      if (now[r] != never || !is_known_to_have_words(rules_[r], known)) continue;
      now[r] = levels;
      found_one = true;
    }
    fewest_levels_ = std::move(now);
    if (!found_one) return;
  }
}

}  // namespace longhaul::forms
