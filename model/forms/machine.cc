#include "model/forms/machine.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/error.h"

namespace longhaul::forms {
namespace {

std::size_t at(const Machine& machine, std::int32_t state, std::int32_t cls) {
  return static_cast<std::size_t>(state) * static_cast<std::size_t>(machine.n_classes) +
         static_cast<std::size_t>(cls);
}

// Classes that are as fine as those of both.
void refine_classes(const Machine& a, const Machine& b, Machine& result) {
  std::map<std::pair<int, int>, std::uint8_t> seen;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::pair<int, int> key{a.class_of[byte], b.class_of[byte]};
    const auto fresh = static_cast<std::uint8_t>(seen.size());
    result.class_of[byte] = seen.emplace(key, fresh).first->second;
  }
  result.n_classes = static_cast<std::int32_t>(seen.size());
}

// Pairs of states of a and b, numbered as they are met. A pair's second state may be kDead.
class Product {
 public:
  Product(const Machine& a, const Machine& b, bool wants_b, std::int32_t max_states)
      : a_(a), b_(b), wants_b_(wants_b), max_states_(max_states) {}

  Machine build() {
    if (a_.start == Machine::kDead || (wants_b_ && b_.start == Machine::kDead)) return {};
    refine_classes(a_, b_, result_);
    std::array<std::uint8_t, 256> byte_of = {};
    for (std::size_t byte = 0; byte < 256; ++byte)
      byte_of[result_.class_of[byte]] = static_cast<std::uint8_t>(byte);
    result_.start = number_of({a_.start, b_.start});
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto [in_a, in_b] = pairs_[i];
      for (std::int32_t cls = 0; cls < result_.n_classes; ++cls) {
        const std::uint8_t byte = byte_of[static_cast<std::size_t>(cls)];
        const std::int32_t to_a = a_.step(in_a, byte);
        const std::int32_t to_b = in_b == Machine::kDead ? Machine::kDead : b_.step(in_b, byte);
        const bool is_dead = to_a == Machine::kDead || (wants_b_ && to_b == Machine::kDead);
        const std::int32_t to = is_dead ? Machine::kDead : number_of({to_a, to_b});
        result_.next[at(result_, static_cast<std::int32_t>(i), cls)] = to;
      }
    }
    return trimmed(result_);
  }

 private:
  std::int32_t number_of(std::pair<std::int32_t, std::int32_t> pair) {
    const auto [found, is_new] = numbers_.emplace(pair, static_cast<std::int32_t>(pairs_.size()));
    if (!is_new) return found->second;
    if (found->second >= max_states_) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("it needs an automaton of more than {} states", max_states_));
    }
    pairs_.push_back(pair);
    const bool in_b =
        pair.second != Machine::kDead && b_.accepting[static_cast<std::size_t>(pair.second)];
    result_.accepting.push_back(a_.accepting[static_cast<std::size_t>(pair.first)] &&
                                in_b == wants_b_);
    result_.next.resize(pairs_.size() * static_cast<std::size_t>(result_.n_classes),
                        Machine::kDead);
    return found->second;
  }

  const Machine& a_;
  const Machine& b_;
  bool wants_b_;
  std::int32_t max_states_;
  Machine result_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> numbers_;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs_;
};

// The states from which an accepting one can be reached.
std::vector<bool> living_states(const Machine& machine) {
  const auto n = static_cast<std::size_t>(machine.n_states());
  std::vector<std::vector<std::int32_t>> from(n);
  for (std::int32_t s = 0; s < machine.n_states(); ++s) {
    for (std::int32_t cls = 0; cls < machine.n_classes; ++cls) {
      const std::int32_t to = machine.next[at(machine, s, cls)];
      if (to != Machine::kDead) from[static_cast<std::size_t>(to)].push_back(s);
    }
  }
  std::vector<bool> lives = machine.accepting;
  std::vector<std::int32_t> todo;
  for (std::int32_t s = 0; s < machine.n_states(); ++s) {
    if (machine.accepting[static_cast<std::size_t>(s)]) todo.push_back(s);
  }
  while (!todo.empty()) {
    const std::int32_t s = todo.back();
    todo.pop_back();
    for (const std::int32_t before : from[static_cast<std::size_t>(s)]) {
      if (lives[static_cast<std::size_t>(before)]) continue;
      lives[static_cast<std::size_t>(before)] = true;
      todo.push_back(before);
    }
  }
  return lives;
}

}  // namespace

bool Machine::is_end(std::int32_t state) const {
  if (!accepting[static_cast<std::size_t>(state)]) return false;
  for (std::int32_t cls = 0; cls < n_classes; ++cls) {
    if (next[at(*this, state, cls)] != kDead) return false;
  }
  return true;
}

Machine intersection(const Machine& a, const Machine& b, std::int32_t max_states) {
  return Product(a, b, /*wants_b=*/true, max_states).build();
}

Machine difference(const Machine& a, const Machine& b, std::int32_t max_states) {
  return Product(a, b, /*wants_b=*/false, max_states).build();
}

Machine trimmed(const Machine& machine) {
  const std::vector<bool> lives = living_states(machine);
  std::vector<std::int32_t> number(lives.size(), Machine::kDead);
  std::int32_t n = 0;
  for (std::size_t s = 0; s < lives.size(); ++s) {
    if (lives[s]) number[s] = n++;
  }
  Machine result;
  result.class_of = machine.class_of;
  result.n_classes = machine.n_classes;
  if (machine.start != Machine::kDead)
    result.start = number[static_cast<std::size_t>(machine.start)];
  for (std::int32_t s = 0; s < machine.n_states(); ++s) {
    if (!lives[static_cast<std::size_t>(s)]) continue;
    result.accepting.push_back(machine.accepting[static_cast<std::size_t>(s)]);
    for (std::int32_t cls = 0; cls < machine.n_classes; ++cls) {
      const std::int32_t to = machine.next[at(machine, s, cls)];
      result.next.push_back(to == Machine::kDead ? to : number[static_cast<std::size_t>(to)]);
    }
  }
  return result;
}

}  // namespace longhaul::forms
