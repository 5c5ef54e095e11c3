// Which tokens stay of a layer's heads, by how much attention they got (KeepBudget). Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/heads/head_policy.h"

namespace longhaul {

// Of one KV head's tokens, in the order of their positions.
struct TokenScores {
  std::int64_t n_tokens = 0;
  // [gqa_group, n_tokens]: what the observing queries of each query head gave each token.
  std::vector<float> masses;
};

// One for each query head, where these choose by themselves (GroupScore::kEach), else all together.
std::vector<TokenScores> choosers_of(const KeepBudget& keep, TokenScores head);

// For each of these choosers of one layer, the tokens that stay: ascending indices. All of them,
// where there are no more than the budget. Heads that share a budget or keep the same tokens
// (KeepBudget::select) must have equal policies and as many tokens. Throws kInvalidArgument for
// choosers that do not, and for masses that are not whole rows.
//
// Scores of a query head's tokens before the last n_recent are pooled (at the edges the average
// divides by the whole kernel too, as published), then those of the group become one; the highest
// win, of equal ones the lower position.
std::vector<std::vector<std::int64_t>> select_tokens(std::span<const KeepBudget> budgets,
                                                     std::span<const TokenScores> heads);

// What a cache holds of the tokens that its choosers chose: of each token, up to the last that any
// of them chose, bit g for the g-th chooser.
std::vector<std::uint64_t> held_of(std::span<const std::vector<std::int64_t>> chosen);

// Tokens of n that one chooser keeps.
std::int64_t chosen_of(const KeepBudget& keep, std::int64_t n_tokens);
// Tokens of n that a head holds at the most: where query heads choose by themselves, as if no two
// chose the same.
std::int64_t budget_of(const KeepBudget& keep, std::int64_t n_tokens);

}  // namespace longhaul
