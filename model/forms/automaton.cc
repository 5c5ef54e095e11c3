#include "model/forms/automaton.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace longhaul::forms {

using Kind = Expression::Kind;

namespace {

constexpr std::int32_t kNoRow = -1;
constexpr ExpressionId kNotYet = -1;

// Gives bytes different classes where `tells_apart` does, beside where they differ already.
template <typename TellsApart>
int refine(std::array<std::uint8_t, 256>& classes, const TellsApart& tells_apart) {
  std::map<std::pair<int, int>, std::uint8_t> numbers;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto fresh = static_cast<std::uint8_t>(numbers.size());
    classes[byte] =
        numbers.emplace(std::pair<int, int>{classes[byte], tells_apart(byte)}, fresh).first->second;
  }
  return static_cast<int>(numbers.size());
}

}  // namespace

Automaton::Automaton(std::unique_ptr<Expressions> expressions)
    : owned_(std::move(expressions)), expressions_(*owned_), n_at_first_(expressions_.size()) {
  find_classes();
}

void Automaton::find_classes() {
  n_classes_ = 1;
  for (const ByteSet& set : expressions_.byte_sets()) {
    if (n_classes_ == 256) break;
    n_classes_ = refine(classes_, [&](std::size_t byte) { return set.test(byte) ? 1 : 0; });
  }
  for (const Machine& machine : expressions_.machines()) {
    if (n_classes_ == 256) break;
    n_classes_ = refine(classes_, [&](std::size_t byte) { return machine.class_of[byte]; });
  }
  byte_of_class_.resize(static_cast<std::size_t>(n_classes_));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_of_class_[classes_[byte]] = static_cast<std::uint8_t>(byte);
  }
}

std::size_t Automaton::row_of(ExpressionId state) {
  const auto at = static_cast<std::size_t>(state);
  if (row_numbers_.size() <= at) row_numbers_.resize(at + 1 + at / 2, kNoRow);
  const auto n = static_cast<std::size_t>(n_classes_);
  if (row_numbers_[at] == kNoRow) {
    row_numbers_[at] = static_cast<std::int32_t>(rows_.size() / n);
    rows_.resize(rows_.size() + n, kNotYet);
  }
  return static_cast<std::size_t>(row_numbers_[at]) * n;
}

ExpressionId Automaton::next(ExpressionId state, std::int32_t cls) {
  const std::size_t at = row_of(state) + static_cast<std::size_t>(cls);
  if (rows_[at] == kNotYet) {
    const ExpressionId result = derivative(state, cls);  // may move rows_
    rows_[at] = result;
  }
  return rows_[at];
}

ExpressionId Automaton::step(ExpressionId state, std::string_view bytes) {
  for (const char c : bytes) {
    if (state == kNothing) break;
    state = step(state, static_cast<std::uint8_t>(c));
  }
  return state;
}

// Derivatives of parts that occur in many states are kept like those of states.
ExpressionId Automaton::part_derivative(ExpressionId id, std::int32_t cls) {
  switch (expressions_[id].kind) {
    case Kind::kEither:
    case Kind::kRepeat:
    case Kind::kSealed:
    case Kind::kRule:
      return next(id, cls);
    case Kind::kNoWord:
    case Kind::kEmptyWord:
    case Kind::kBytes:
    case Kind::kConcat:
    case Kind::kMachine:
      break;
  }
  return derivative(id, cls);
}

// Of a, b, c in a row: a' b c, and when a may be empty b' c, and when b may be empty c'.
ExpressionId Automaton::chain_derivative(ExpressionId id, std::int32_t cls) {
  std::vector<ExpressionId> ways;
  while (expressions_[id].kind == Kind::kConcat) {
    const Expression link = expressions_[id];
    ways.push_back(expressions_.concat(part_derivative(link.a, cls), link.b));
    if (!expressions_.is_nullable(link.a)) return expressions_.either(std::move(ways));
    id = link.b;
  }
  ways.push_back(part_derivative(id, cls));
  return expressions_.either(std::move(ways));
}

ExpressionId Automaton::derivative(ExpressionId id, std::int32_t cls) {
  const Expression e = expressions_[id];
  const std::uint8_t byte = byte_of_class_[static_cast<std::size_t>(cls)];
  switch (e.kind) {
    case Kind::kNoWord:
    case Kind::kEmptyWord:
      return kNothing;
    case Kind::kBytes:
      return expressions_.byte_set(e).test(byte) ? kEmpty : kNothing;
    case Kind::kConcat:
      return chain_derivative(id, cls);
    case Kind::kEither: {
      const auto those = expressions_.members(e);
      const std::vector<ExpressionId> members(those.begin(), those.end());
      std::vector<ExpressionId> ways;
      for (const ExpressionId member : members) ways.push_back(part_derivative(member, cls));
      return expressions_.either(std::move(ways));
    }
    case Kind::kRepeat: {
      const std::int32_t max = e.max == Expression::kNoMax ? e.max : e.max - 1;
      const ExpressionId first = part_derivative(e.a, cls);
      if (first == kNothing) return kNothing;
      return expressions_.concat(first, expressions_.repeat(e.a, e.min > 0 ? e.min - 1 : 0, max));
    }
    case Kind::kSealed:
      return expressions_.sealed(part_derivative(e.a, cls));
    case Kind::kMachine:
      return expressions_.machine_state(e.a, expressions_.machine_of(e).step(e.b, byte));
    case Kind::kRule:
      return part_derivative(expressions_.body_of(id), cls);
  }
  throw Error(ErrorCode::kInternal, "an expression of no kind");
}

void Automaton::reset() {
  expressions_.shrink(n_at_first_);
  row_numbers_ = {};
  rows_ = {};
}

std::size_t Automaton::bytes_used() const {
  return rows_.capacity() * sizeof(ExpressionId) + row_numbers_.capacity() * sizeof(std::int32_t) +
         expressions_.size() * (sizeof(Expression) + 4 * sizeof(void*));
}

Machine to_machine(Automaton& automaton, ExpressionId start, std::int32_t max_states) {
  Machine machine;
  machine.n_classes = automaton.n_classes();
  for (std::size_t byte = 0; byte < 256; ++byte)
    machine.class_of[byte] = automaton.class_of(static_cast<std::uint8_t>(byte));
  if (start == kNothing) return machine;
  std::unordered_map<ExpressionId, std::int32_t> numbers{{start, 0}};
  std::vector<ExpressionId> states{start};
  machine.start = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    machine.accepting.push_back(automaton.is_nullable(states[i]));
    for (std::int32_t cls = 0; cls < machine.n_classes; ++cls) {
      const ExpressionId to = automaton.next(states[i], cls);
      if (to == kNothing) {
        machine.next.push_back(Machine::kDead);
        continue;
      }
      const auto [at, is_new] = numbers.emplace(to, static_cast<std::int32_t>(states.size()));
      if (is_new) states.push_back(to);
      machine.next.push_back(at->second);
    }
    if (static_cast<std::int32_t>(states.size()) > max_states) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("it needs an automaton of more than {} states", max_states));
    }
  }
  return trimmed(machine);
}

}  // namespace longhaul::forms
