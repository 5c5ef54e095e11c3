// Languages over bytes as expressions: what regular expressions and JSON Schemas become. Equal
// expressions are one object, so an expression is also a state of the automaton that reads it: the
// state after a byte is the expression's derivative (J. Brzozowski, "Derivatives of Regular
// Expressions", 1964; S. Owens and others, "Regular-expression derivatives re-examined", 2009).
//
// Recursion ("a value is a list of values") is a rule that an expression names. Every mention has
// the number of levels that may still nest inside it, so the language as a whole is finite in
// states, and no expression without words is ever built: a state always leads to an end.
#pragma once
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/forms/machine.h"

namespace longhaul::forms {

using ByteSet = std::bitset<256>;

// Of one Expressions. The first two are the same everywhere.
using ExpressionId = std::int32_t;
inline constexpr ExpressionId kNothing = 0;  // no word at all
inline constexpr ExpressionId kEmpty = 1;    // the empty word alone

struct Expression {
  enum class Kind : std::uint8_t {
    kNoWord,
    kEmptyWord,
    kBytes,    // one byte of a set
    kConcat,   // `a`, then `b`; a is no kConcat
    kEither,   // one of members(); no member is a kEither
    kRepeat,   // `min` to `max` times `a`
    kSealed,   // `a`, as a part that occurs in many places (see mask_maker.h)
    kMachine,  // the machine `a` from its state `b` on
    kRule,     // the rule `a` with `b` levels; kAnyLevel: to be decided
  };
  static constexpr std::int32_t kNoMax = -1;
  static constexpr std::int32_t kAnyLevel = -1;

  Kind kind = Kind::kNoWord;
  bool is_nullable = false;     // the empty word is in it
  bool has_open_rules = false;  // names rules with kAnyLevel
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::int32_t min = 0;
  std::int32_t max = 0;
};

// Thrown when an arena is full. Its owner makes room or refuses what was too large.
struct TooManyExpressions {};

// Used by one thread.
class Expressions {
 public:
  // Members of alternatives count as expressions.
  explicit Expressions(std::size_t max_expressions);
  Expressions(const Expressions&) = delete;
  Expressions& operator=(const Expressions&) = delete;

  ExpressionId bytes(const ByteSet& set);
  ExpressionId byte_range(std::uint8_t first, std::uint8_t last);
  ExpressionId literal(std::string_view text);
  ExpressionId concat(ExpressionId a, ExpressionId b);
  ExpressionId sequence(std::span<const ExpressionId> parts);
  ExpressionId either(std::vector<ExpressionId> members);
  ExpressionId repeat(ExpressionId a, std::int32_t min, std::int32_t max);
  ExpressionId optional(ExpressionId a) { return repeat(a, 0, 1); }
  ExpressionId sealed(ExpressionId a);
  ExpressionId machine(Machine machine);
  ExpressionId machine_state(std::int32_t machine, std::int32_t state);

  // A rule without a body yet. Its words are never empty.
  std::int32_t add_rule();
  void set_rule(std::int32_t rule, ExpressionId body);
  ExpressionId rule(std::int32_t rule, std::int32_t levels = Expression::kAnyLevel);
  // When all rules have bodies: the same with every open rule given `levels`; those that have no
  // word of so few levels are nothing. Call find_fewest_levels() before.
  ExpressionId with_levels(ExpressionId id, std::int32_t levels);
  // What the rule `id` (closed) stands for.
  ExpressionId body_of(ExpressionId id);
  void find_fewest_levels(std::int32_t max_levels);

  const Expression& operator[](ExpressionId id) const {
    return nodes_[static_cast<std::size_t>(id)];
  }
  bool is_nullable(ExpressionId id) const { return (*this)[id].is_nullable; }
  std::span<const ExpressionId> members(const Expression& either) const {
    return std::span(members_).subspan(static_cast<std::size_t>(either.a),
                                       static_cast<std::size_t>(either.b));
  }
  const ByteSet& byte_set(const Expression& e) const {
    return sets_[static_cast<std::size_t>(e.a)];
  }
  const std::vector<ByteSet>& byte_sets() const { return sets_; }
  const Machine& machine_of(const Expression& e) const {
    return machines_[static_cast<std::size_t>(e.a)];
  }
  const std::vector<Machine>& machines() const { return machines_; }

  std::size_t size() const { return nodes_.size(); }
  // Forgets all expressions from `size` on; nobody may hold one of them.
  void shrink(std::size_t size);

 private:
  struct Hash {
    const Expressions* all;
    std::size_t operator()(ExpressionId id) const;
  };
  struct Equal {
    const Expressions* all;
    bool operator()(ExpressionId x, ExpressionId y) const;
  };
  ExpressionId add(const Expression& node);
  ExpressionId levelled_chain(ExpressionId id, std::int32_t levels);
  ExpressionId levelled(const Expression& node, std::int32_t levels);
  bool is_known_to_have_words(ExpressionId id, std::vector<std::int8_t>& known) const;
  void check_room(std::size_t n) const;

  std::size_t max_expressions_;
  std::vector<Expression> nodes_;
  std::vector<ExpressionId> members_;
  std::vector<ByteSet> sets_;
  std::vector<Machine> machines_;
  std::vector<ExpressionId> rules_;          // bodies, kNothing: none yet
  std::vector<std::int32_t> fewest_levels_;  // of a rule's words
  std::unordered_map<ByteSet, std::int32_t> set_numbers_;
  std::unordered_set<ExpressionId, Hash, Equal> unique_;
  std::unordered_map<std::uint64_t, ExpressionId> levelled_;  // of with_levels: (id, levels)
};

}  // namespace longhaul::forms
