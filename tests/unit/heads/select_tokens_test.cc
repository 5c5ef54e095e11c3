// Which tokens stay: hand values for pooling, groups, forced tokens, ties, and shared budgets.
#include "model/heads/select_tokens.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using Tokens = std::vector<std::int64_t>;

Tokens kept_of(const KeepBudget& keep, const TokenScores& head) {
  return select_tokens(std::span(&keep, 1), std::span(&head, 1)).at(0);
}

TEST(SelectTokens, TheHighestScoresWinAndTheWindowStays) {
  const TokenScores head{.n_tokens = 6, .masses = {5, 1, 9, 2, 7, 0}};
  EXPECT_EQ(kept_of({.n_tokens = 3, .n_recent = 1}, head), (Tokens{2, 4, 5}));
  EXPECT_EQ(kept_of({.n_tokens = 3, .n_recent = 2}, head), (Tokens{2, 4, 5}));
  EXPECT_EQ(kept_of({.n_tokens = 3, .n_sink = 2, .n_recent = 1}, head), (Tokens{0, 1, 5}));
  EXPECT_EQ(kept_of({.n_tokens = 4, .n_sink = 1}, head), (Tokens{0, 2, 3, 4}));
}

TEST(SelectTokens, KeepsAllWhereThereAreNoMoreThanTheBudget) {
  const TokenScores head{.n_tokens = 3, .masses = {1, 2, 3}};
  EXPECT_EQ(kept_of({.n_tokens = 3, .n_recent = 1}, head), (Tokens{0, 1, 2}));
  EXPECT_EQ(kept_of({.n_tokens = 300, .n_recent = 200}, head), (Tokens{0, 1, 2}));
}

TEST(SelectTokens, OfEqualScoresTheLowerPositionWins) {
  const TokenScores head{.n_tokens = 5, .masses = {1, 4, 4, 4, 0}};
  EXPECT_EQ(kept_of({.n_tokens = 2}, head), (Tokens{1, 2}));
}

TEST(SelectTokens, AShareIsRoundedDown) {
  EXPECT_EQ(budget_of({.share = 0.5}, 7), 3);
  EXPECT_EQ(budget_of({.share = 0.1, .n_recent = 4}, 7), 4);
  EXPECT_EQ(budget_of({.n_tokens = 9}, 7), 7);
}

// Averages at the edges divide by the whole kernel, maxima take what there is, and neither looks
// into the window.
TEST(SelectTokens, PoolsBeforeTheWindowOnly) {
  const TokenScores head{.n_tokens = 6, .masses = {9, 0, 0, 6, 7, 100}};
  // Averages: 3, 3, 2, 13/3, 13/3.
  EXPECT_EQ(kept_of({.n_tokens = 3, .n_recent = 1, .pool = {PoolKind::kAverage, 3}}, head),
            (Tokens{3, 4, 5}));
  // Maxima: 9, 9, 6, 7, 7.
  EXPECT_EQ(kept_of({.n_tokens = 3, .n_recent = 1, .pool = {PoolKind::kMax, 3}}, head),
            (Tokens{0, 1, 5}));
}

TEST(SelectTokens, AGroupIsItsMeanOrItsMaximum) {
  const TokenScores head{.n_tokens = 3,
                         .masses = {0, 5, 1,  //
                                    9, 6, 1}};
  EXPECT_EQ(kept_of({.n_tokens = 1, .group = GroupScore::kMean}, head), Tokens{1});
  EXPECT_EQ(kept_of({.n_tokens = 1, .group = GroupScore::kMax}, head), Tokens{0});
}

TEST(SelectTokens, ALayerMayKeepTheSameTokensInAllHeads) {
  const KeepBudget keep{.n_tokens = 2, .n_recent = 1, .select = SelectAmong::kLayerAlike};
  const std::vector<KeepBudget> budgets(2, keep);
  const std::vector<TokenScores> heads = {{.n_tokens = 4, .masses = {3, 0, 2, 0}},
                                          {.n_tokens = 4, .masses = {0, 1, 2, 0}}};
  EXPECT_EQ(select_tokens(budgets, heads), (std::vector<Tokens>{{2, 3}, {2, 3}}));
}

TEST(SelectTokens, ALayerMayShareABudgetAboveAFloor) {
  KeepBudget keep{.n_tokens = 3, .n_recent = 1, .select = SelectAmong::kLayerShared};
  const std::vector<TokenScores> heads = {{.n_tokens = 5, .masses = {9, 8, 7, 6, 0}},
                                          {.n_tokens = 5, .masses = {1, 2, 3, 4, 0}}};
  EXPECT_EQ(select_tokens(std::vector<KeepBudget>(2, keep), heads),
            (std::vector<Tokens>{{0, 1, 2, 3, 4}, {4}}));
  keep.head_floor = 0.7;  // of 3: the window and one more
  EXPECT_EQ(select_tokens(std::vector<KeepBudget>(2, keep), heads),
            (std::vector<Tokens>{{0, 1, 2, 4}, {3, 4}}));
}

TEST(SelectTokens, QueryHeadsMayChooseByThemselves) {
  const KeepBudget keep{.n_tokens = 2, .n_recent = 1, .group = GroupScore::kEach, .n_choosers = 2};
  const std::vector<TokenScores> choosers = choosers_of(keep, {.n_tokens = 4,
                                                               .masses = {3, 0, 2, 0,  //
                                                                          0, 1, 2, 0}});
  const auto chosen = select_tokens(std::vector<KeepBudget>(2, keep), choosers);
  EXPECT_EQ(chosen, (std::vector<Tokens>{{0, 3}, {2, 3}}));
  EXPECT_EQ(held_of(chosen), (std::vector<std::uint64_t>{1, 0, 2, 3}));
  EXPECT_EQ(budget_of(keep, 100), 3);
  EXPECT_EQ(budget_of(keep, 2), 2);
  EXPECT_EQ(chosen_of(keep, 100), 2);
  EXPECT_THROW(choosers_of(keep, {.n_tokens = 4, .masses = {1, 2, 3, 4}}), Error);
}

TEST(SelectTokens, RefusesHeadsThatCannotChooseTogether) {
  const KeepBudget keep{.n_tokens = 1, .select = SelectAmong::kLayerShared};
  const std::vector<TokenScores> heads = {{.n_tokens = 2, .masses = {9, 8}},
                                          {.n_tokens = 3, .masses = {1, 2, 3}}};
  EXPECT_THROW(select_tokens(std::vector<KeepBudget>(2, keep), heads), Error);
  const TokenScores uneven{.n_tokens = 2, .masses = {1, 2, 3}};
  EXPECT_THROW(kept_of({.n_tokens = 1}, uneven), Error);
}

}  // namespace
}  // namespace longhaul
