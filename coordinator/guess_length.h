// How many guesses of an answer's next tokens are worth their time, by how many came true. Pure.
#pragma once
#include <cstdint>

namespace longhaul {

// Of one answer and one source of guesses.
class GuessLength {
 public:
  explicit GuessLength(std::int64_t most);

  // For the step at hand, of which there may be `allowed`; 0 in a pause, which then is a step
  // shorter.
  std::int64_t next(std::int64_t allowed);
  // How many of a step's guesses came true. The next number is up to twice as many and one after
  // those that did; after misses in a row, as many steps go without.
  void learn(std::int64_t n_guessed, std::int64_t n_true);

 private:
  std::int64_t most_;
  std::int64_t length_;
  std::int64_t n_missed_ = 0;  // in a row
  std::int64_t n_pauses_ = 0;  // steps to come without guesses
};

}  // namespace longhaul
