#include "model/forms/mask_maker.h"

#include <utility>

namespace longhaul::forms {

using Kind = Expression::Kind;

namespace {
constexpr std::size_t kMaxBytesKept = std::size_t{64} << 20;
}  // namespace

MaskMaker::MaskMaker(std::shared_ptr<const TokenTrie> trie, Automaton& automaton)
    : trie_(std::move(trie)),
      automaton_(automaton),
      path_(static_cast<std::size_t>(trie_->longest_token()) + 1) {}

void MaskMaker::forget() {
  masks_.clear();
  parts_.clear();
  shortened_.clear();
  bytes_kept_ = 0;
}

void MaskMaker::make_room() {
  if (bytes_kept_ > kMaxBytesKept) forget();
}

std::shared_ptr<const IdSet> MaskMaker::mask(ExpressionId state) {
  state = shortened(state);
  if (const auto found = masks_.find(state); found != masks_.end()) return found->second;
  make_room();
  auto mask = std::make_shared<IdSet>(trie_->vocab_size());
  add(state, *mask);
  bytes_kept_ += mask->bytes();
  return masks_.emplace(state, std::move(mask)).first->second;
}

void MaskMaker::add(ExpressionId state, IdSet& mask) {
  const Expression e = automaton_.expressions()[state];
  switch (e.kind) {
    case Kind::kEither: {
      const auto those = automaton_.expressions().members(e);
      const std::vector<ExpressionId> members(those.begin(), those.end());
      for (const ExpressionId member : members) add(member, mask);
      return;
    }
    case Kind::kSealed:
      return add_chain(state, kEmpty, mask);
    case Kind::kConcat:
      if (automaton_.expressions()[e.a].kind == Kind::kSealed) return add_chain(e.a, e.b, mask);
      break;
    case Kind::kNoWord:
    case Kind::kEmptyWord:
      return;
    case Kind::kBytes:
    case Kind::kRepeat:
    case Kind::kMachine:
    case Kind::kRule:
      break;
  }
  walk(state, 0, trie_->n_nodes(), 0, mask, nullptr);
}

void MaskMaker::add_chain(ExpressionId sealed, ExpressionId rest, IdSet& mask) {
  const Part& part = part_of(automaton_.expressions()[sealed].a);
  mask.insert(part.inside);
  if (rest == kEmpty) return;
  for (const std::int32_t exit : part.exits) {
    const TokenTrie::Node& node = trie_->node(exit);
    walk(rest, exit + 1, node.end, node.depth, mask, nullptr);
  }
  if (automaton_.is_nullable(sealed)) add(rest, mask);
}

const MaskMaker::Part& MaskMaker::part_of(ExpressionId content) {
  if (const auto found = parts_.find(content); found != parts_.end()) return found->second;
  Part part{.inside = IdSet(trie_->vocab_size()), .exits = {}};
  walk(content, 0, trie_->n_nodes(), 0, part.inside, &part.exits);
  bytes_kept_ += part.inside.bytes() + part.exits.size() * sizeof(std::int32_t);
  return parts_.emplace(content, std::move(part)).first->second;
}

// The nodes [begin, end) are those below a node of the given depth, at which the state is `state`.
void MaskMaker::walk(ExpressionId state, std::int32_t begin, std::int32_t end, std::size_t depth,
                     IdSet& mask, std::vector<std::int32_t>* exits) {
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  path_[depth] = state;
  for (std::int32_t i = begin; i < end;) {
    const TokenTrie::Node& node = nodes[static_cast<std::size_t>(i)];
    const ExpressionId to = automaton_.step(path_[node.depth - std::size_t{1}], node.byte);
    if (to == kNothing) {
      i = node.end;
      continue;
    }
    path_[node.depth] = to;
    for (const std::int32_t token : trie_->tokens_at(i)) mask.insert(token);
    if (exits != nullptr && node.end > i + 1 && automaton_.is_nullable(to)) exits->push_back(i);
    ++i;
  }
}

// Without recursion along the chain, and each rest of it once: literals are long, and the ways
// through parts that may be left out are rests of one another.
ExpressionId MaskMaker::shortened_chain(ExpressionId state) {
  Expressions& all = automaton_.expressions();
  std::vector<ExpressionId> links;
  ExpressionId at = state;
  for (; all[at].kind == Kind::kConcat && !shortened_.contains(at); at = all[at].b)
    links.push_back(at);
  const auto known = shortened_.find(at);
  ExpressionId rest = known != shortened_.end() ? known->second : shortened(at);
  for (auto link = links.rbegin(); link != links.rend(); ++link) {
    rest = all.concat(shortened(all[*link].a), rest);
    shortened_.emplace(*link, rest);
  }
  return rest;
}

// A state with the same mask in which no count is larger than a token is long: so a string of at
// most 5,000 characters costs no more masks than one of 100. A token of n bytes takes at most n
// turns of a part that is never empty, so what counts beyond that say makes no difference to it.
ExpressionId MaskMaker::shortened(ExpressionId state) {
  Expressions& all = automaton_.expressions();
  const Expression e = all[state];
  switch (e.kind) {
    case Kind::kConcat:
      return shortened_chain(state);
    case Kind::kSealed:
      return all.sealed(shortened(e.a));
    case Kind::kRepeat: {
      const std::int32_t limit = trie_->longest_token() + 1;
      if (all.is_nullable(e.a)) return state;
      const std::int32_t max = e.max > limit ? Expression::kNoMax : e.max;
      return all.repeat(e.a, e.min > limit ? limit : e.min, max);
    }
    case Kind::kEither: {
      const auto those = all.members(e);
      std::vector<ExpressionId> members(those.begin(), those.end());
      for (ExpressionId& member : members) member = shortened(member);
      return all.either(std::move(members));
    }
    case Kind::kNoWord:
    case Kind::kEmptyWord:
    case Kind::kBytes:
    case Kind::kMachine:
    case Kind::kRule:
      return state;
  }
  return state;
}

}  // namespace longhaul::forms
