#include "model/forms/expressions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/split_mix.h"

namespace longhaul::forms {

using Kind = Expression::Kind;

std::size_t Expressions::Hash::operator()(ExpressionId id) const {
  const Expression& e = (*all)[id];
  std::uint64_t hash = split_mix(static_cast<std::uint64_t>(e.kind));
  const auto mix = [&](std::int32_t value) {
    hash = split_mix(hash ^ static_cast<std::uint32_t>(value));
  };
  if (e.kind == Kind::kEither) {
    for (const ExpressionId member : all->members(e)) mix(member);
  } else {
    for (const std::int32_t value : {e.a, e.b, e.min, e.max}) mix(value);
  }
  return static_cast<std::size_t>(hash);
}

bool Expressions::Equal::operator()(ExpressionId x, ExpressionId y) const {
  const Expression& a = (*all)[x];
  const Expression& b = (*all)[y];
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::kEither) {
    return std::ranges::equal(all->members(a), all->members(b));
  }
  return a.a == b.a && a.b == b.b && a.min == b.min && a.max == b.max;
}

Expressions::Expressions(std::size_t max_expressions)
    : max_expressions_(max_expressions), unique_(64, Hash{this}, Equal{this}) {
  add({.kind = Kind::kNoWord});
  add({.kind = Kind::kEmptyWord, .is_nullable = true});
}

void Expressions::check_room(std::size_t n) const {
  if (nodes_.size() + members_.size() + sets_.size() + n > max_expressions_) {
    throw TooManyExpressions();
  }
}

ExpressionId Expressions::add(const Expression& node) {
  check_room(1);
  const auto id = static_cast<ExpressionId>(nodes_.size());
  nodes_.push_back(node);
  const auto [at, is_new] = unique_.insert(id);
  if (!is_new) nodes_.pop_back();
  return *at;
}

ExpressionId Expressions::bytes(const ByteSet& set) {
  if (set.none()) return kNothing;
  const auto [at, is_new] = set_numbers_.emplace(set, static_cast<std::int32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return add({.kind = Kind::kBytes, .a = at->second});
}

ExpressionId Expressions::byte_range(std::uint8_t first, std::uint8_t last) {
  ByteSet set;
  for (std::size_t byte = first; byte <= last; ++byte) set.set(byte);
  return bytes(set);
}

ExpressionId Expressions::literal(std::string_view text) {
  ExpressionId result = kEmpty;
  for (auto c = text.rbegin(); c != text.rend(); ++c) {
    const auto byte = static_cast<std::uint8_t>(*c);
    result = concat(byte_range(byte, byte), result);
  }
  return result;
}

ExpressionId Expressions::concat(ExpressionId a, ExpressionId b) {
  if (a == kNothing || b == kNothing) return kNothing;
  std::vector<ExpressionId> heads;
  for (; (*this)[a].kind == Kind::kConcat; a = (*this)[a].b) heads.push_back((*this)[a].a);
  heads.push_back(a);
  for (; !heads.empty(); heads.pop_back()) {
    const ExpressionId head = heads.back();
    if (head == kEmpty) continue;
    if (b == kEmpty) {
      b = head;
      continue;
    }
    const Expression& first = (*this)[head];
    const Expression& rest = (*this)[b];
    b = add({.kind = Kind::kConcat,
             .is_nullable = first.is_nullable && rest.is_nullable,
             .has_open_rules = first.has_open_rules || rest.has_open_rules,
             .a = head,
             .b = b});
  }
  return b;
}

ExpressionId Expressions::sequence(std::span<const ExpressionId> parts) {
  ExpressionId result = kEmpty;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) result = concat(*part, result);
  return result;
}

ExpressionId Expressions::either(std::vector<ExpressionId> wanted) {
  std::vector<ExpressionId> flat;
  ByteSet one_byte;
  const auto take = [&](ExpressionId id) {
    if (id == kNothing) return;
    if ((*this)[id].kind == Kind::kBytes) {
      one_byte |= byte_set((*this)[id]);
    } else {
      flat.push_back(id);
    }
  };
  for (const ExpressionId id : wanted) {
    if ((*this)[id].kind == Kind::kEither) {
      for (const ExpressionId member : members((*this)[id])) take(member);
    } else {
      take(id);
    }
  }
  if (one_byte.any()) flat.push_back(bytes(one_byte));
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat.front();
  Expression node{.kind = Kind::kEither,
                  .a = static_cast<std::int32_t>(members_.size()),
                  .b = static_cast<std::int32_t>(flat.size())};
  for (const ExpressionId id : flat) {
    node.is_nullable |= (*this)[id].is_nullable;
    node.has_open_rules |= (*this)[id].has_open_rules;
  }
  check_room(flat.size() + 1);  // so that add() cannot fail
  members_.insert(members_.end(), flat.begin(), flat.end());
  const std::size_t n_before = nodes_.size();
  const ExpressionId id = add(node);
  if (nodes_.size() == n_before) members_.resize(members_.size() - flat.size());
  return id;
}

ExpressionId Expressions::repeat(ExpressionId a, std::int32_t min, std::int32_t max) {
  if (max == 0 || a == kEmpty) return kEmpty;
  if (a == kNothing) return min == 0 ? kEmpty : kNothing;
  if (min == 1 && max == 1) return a;
  const Expression& body = (*this)[a];
  if (body.is_nullable) min = 0;
  // (x*)* and the like, which would otherwise have several derivatives that mean the same.
  const bool is_any_number = body.kind == Kind::kRepeat && body.max == Expression::kNoMax;
  if (is_any_number && body.min <= 1 && min <= 1) return repeat(body.a, body.min * min, body.max);
  return add({.kind = Kind::kRepeat,
              .is_nullable = min == 0,
              .has_open_rules = body.has_open_rules,
              .a = a,
              .min = min,
              .max = max});
}

ExpressionId Expressions::sealed(ExpressionId a) {
  if (a == kNothing || a == kEmpty) return a;
  const Expression& body = (*this)[a];
  return add({.kind = Kind::kSealed,
              .is_nullable = body.is_nullable,
              .has_open_rules = body.has_open_rules,
              .a = a});
}

ExpressionId Expressions::machine(Machine machine) {
  if (machine.start == Machine::kDead) return kNothing;
  const std::int32_t start = machine.start;
  machines_.push_back(std::move(machine));
  return machine_state(static_cast<std::int32_t>(machines_.size()) - 1, start);
}

ExpressionId Expressions::machine_state(std::int32_t number, std::int32_t state) {
  const Machine& machine = machines_[static_cast<std::size_t>(number)];
  if (state == Machine::kDead) return kNothing;
  if (machine.is_end(state)) return kEmpty;
  return add({.kind = Kind::kMachine,
              .is_nullable = machine.accepting[static_cast<std::size_t>(state)],
              .a = number,
              .b = state});
}

void Expressions::shrink(std::size_t size) {
  while (nodes_.size() > size) {
    unique_.erase(static_cast<ExpressionId>(nodes_.size()) - 1);
    if (nodes_.back().kind == Kind::kEither) {
      members_.resize(members_.size() - static_cast<std::size_t>(nodes_.back().b));
    }
    nodes_.pop_back();
  }
  std::erase_if(levelled_, [&](const auto& entry) {
    return static_cast<std::size_t>(entry.second) >= size || entry.first >> 32 >= size;
  });
}

}  // namespace longhaul::forms
