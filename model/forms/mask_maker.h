// Which tokens may follow in a state: those whose bytes lead to a state that is not nothing. Found
// by walking the vocabulary's tree and the automaton together; tokens may end anywhere, also in the
// middle of a character or behind the end of a string.
//
// A sealed part (a JSON string) occurs in many states that differ in what follows it: "..." and
// then a comma, or the ends of three lists. Most tokens stay inside of it, so these are found once
// for the part, with the nodes of the tree at which the part may be over; what follows is walked
// from those nodes alone. (XGrammar, arXiv 2411.15100, section 3.1, calls the former
// context-independent tokens.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/id_set.h"
#include "model/forms/automaton.h"
#include "model/forms/token_trie.h"

namespace longhaul::forms {

// Used by one thread. Calls may throw TooManyExpressions.
class MaskMaker {
 public:
  // The automaton must outlive it.
  MaskMaker(std::shared_ptr<const TokenTrie> trie, Automaton& automaton);

  // Kept for the next question. [vocab_size]
  std::shared_ptr<const IdSet> mask(ExpressionId state);
  // Before the automaton is reset.
  void forget();

 private:
  struct Part {
    IdSet inside;                     // tokens that the part goes on with or ends in
    std::vector<std::int32_t> exits;  // nodes with children at which the part may be over
  };
  void add(ExpressionId state, IdSet& mask);
  void add_chain(ExpressionId sealed, ExpressionId rest, IdSet& mask);
  const Part& part_of(ExpressionId content);
  void walk(ExpressionId state, std::int32_t begin, std::int32_t end, std::size_t depth,
            IdSet& mask, std::vector<std::int32_t>* exits);
  ExpressionId shortened(ExpressionId state);
  ExpressionId shortened_chain(ExpressionId state);
  void make_room();

  std::shared_ptr<const TokenTrie> trie_;
  Automaton& automaton_;
  std::vector<ExpressionId> path_;  // states by depth, of the walk
  std::unordered_map<ExpressionId, std::shared_ptr<const IdSet>> masks_;
  std::unordered_map<ExpressionId, Part> parts_;
  std::unordered_map<ExpressionId, ExpressionId> shortened_;  // of chains
  std::size_t bytes_kept_ = 0;
};

}  // namespace longhaul::forms
