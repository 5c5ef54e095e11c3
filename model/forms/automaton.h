// Reads bytes with an expression: states are expressions, transitions are derivatives, made when
// they are first taken and kept.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/forms/expressions.h"

namespace longhaul::forms {

// Used by one thread. Any call that steps may throw TooManyExpressions.
class Automaton {
 public:
  // `expressions` are complete: from now on only derivatives are added to them.
  explicit Automaton(std::unique_ptr<Expressions> expressions);

  // Expressions may be added that are made of the automaton's own parts.
  Expressions& expressions() { return expressions_; }

  // The state after one more byte; kNothing when no word goes on like this.
  ExpressionId step(ExpressionId state, std::uint8_t byte) { return next(state, classes_[byte]); }
  ExpressionId step(ExpressionId state, std::string_view bytes);
  bool is_nullable(ExpressionId state) const { return expressions_.is_nullable(state); }

  // Bytes of one class lead to the same state from every state.
  std::int32_t n_classes() const { return n_classes_; }
  std::uint8_t class_of(std::uint8_t byte) const { return classes_[byte]; }
  ExpressionId next(ExpressionId state, std::int32_t cls);

  // Forgets all states but those that the expressions had at first.
  void reset();
  // Since then nothing was read.
  bool is_fresh() const { return owned_->size() == n_at_first_; }
  std::size_t bytes_used() const;

 private:
  void find_classes();
  ExpressionId derivative(ExpressionId id, std::int32_t cls);
  ExpressionId part_derivative(ExpressionId id, std::int32_t cls);
  ExpressionId chain_derivative(ExpressionId id, std::int32_t cls);
  std::size_t row_of(ExpressionId state);

  std::unique_ptr<Expressions> owned_;
  Expressions& expressions_;
  std::size_t n_at_first_;
  std::array<std::uint8_t, 256> classes_ = {};
  std::vector<std::uint8_t> byte_of_class_;
  std::int32_t n_classes_ = 0;
  std::vector<std::int32_t> row_numbers_;  // of states; kNoRow: none yet
  std::vector<ExpressionId> rows_;         // [n_rows, n_classes]
};

// As a machine of all its states. Throws kUnsupported when there are more than `max_states`.
Machine to_machine(Automaton& automaton, ExpressionId start, std::int32_t max_states);

}  // namespace longhaul::forms
