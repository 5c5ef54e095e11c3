// A deterministic automaton over bytes, complete and small: what intersections and differences of
// regular languages are computed with. Every state can still reach an accepting one.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace longhaul::forms {

struct Machine {
  static constexpr std::int32_t kDead = -1;

  std::array<std::uint8_t, 256> class_of = {};  // bytes that no state tells apart share a class
  std::int32_t n_classes = 1;
  std::vector<std::int32_t> next;  // [n_states, n_classes]; kDead: no word goes on like this
  std::vector<bool> accepting;     // [n_states]
  std::int32_t start = kDead;      // kDead: the language is empty

  std::int32_t n_states() const { return static_cast<std::int32_t>(accepting.size()); }
  std::int32_t step(std::int32_t state, std::uint8_t byte) const {
    return next[static_cast<std::size_t>(state) * static_cast<std::size_t>(n_classes) +
                class_of[byte]];
  }
  // Nothing follows: the state is accepting and has no way on.
  bool is_end(std::int32_t state) const;
};

// The words of both; those of `a` that are not words of `b`. Throw kUnsupported when the result has
// more than `max_states` states.
Machine intersection(const Machine& a, const Machine& b, std::int32_t max_states);
Machine difference(const Machine& a, const Machine& b, std::int32_t max_states);
// Removes the states from which no accepting one can be reached.
Machine trimmed(const Machine& machine);

}  // namespace longhaul::forms
