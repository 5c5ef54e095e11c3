#include "coordinator/guess_length.h"

#include <algorithm>

namespace longhaul {
namespace {

constexpr std::int64_t kFirstLength = 4;
constexpr std::int64_t kMostPauses = 16;

}  // namespace

GuessLength::GuessLength(std::int64_t most) : most_(most), length_(std::min(kFirstLength, most)) {}

std::int64_t GuessLength::next(std::int64_t allowed) {
  if (n_pauses_ > 0) {
    --n_pauses_;
    return 0;
  }
  return std::min(length_, allowed);
}

void GuessLength::learn(std::int64_t n_guessed, std::int64_t n_true) {
  if (n_guessed == 0) return;
  length_ = std::min(most_, std::max(2 * n_true + 1, n_true == n_guessed ? length_ : 1));
  n_missed_ = n_true == 0 ? n_missed_ + 1 : 0;
  n_pauses_ = std::min(n_missed_, kMostPauses);
}

}  // namespace longhaul
