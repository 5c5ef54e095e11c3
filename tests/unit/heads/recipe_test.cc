// Which recipe recovers enough of a text's attention, and what it keeps: hand values.
#include "model/heads/recipe.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

constexpr TokenClass kS = TokenClass::kSpecial;
constexpr TokenClass kP = TokenClass::kPunctuation;
constexpr TokenClass kO = TokenClass::kOther;
using Kept = std::vector<std::int64_t>;

// Ten tokens whose attention sums to 10; half of it is local.
const TokenClasses kClasses = {kS, kO, kO, kP, kO, kO, kO, kO, kO, kO};
const std::vector<double> kMasses = {4, 1, 0.5, 1.5, 0.5, 1.2, 0.1, 0.2, 0.6, 0.4};
const std::vector<double> kLocal = {2, 0.5, 0.25, 0.75, 0.25, 0.6, 0.05, 0.1, 0.6, 0.4};
const AttendedTokens kText{kClasses, kMasses, kLocal};

TEST(Recipe, RecoversWhatItsTokensGot) {
  const Recover recover{.threshold = 0.5, .frequent = 0.29, .local = 0.2};
  EXPECT_NEAR(recovered(recover, RecipeKind::kSpecial, kText), 0.4, 1e-12);
  EXPECT_NEAR(recovered(recover, RecipeKind::kPunctuation, kText), 0.55, 1e-12);
  EXPECT_NEAR(recovered(recover, RecipeKind::kFrequent, kText), 0.77, 1e-12);  // and 5 and 1
  // And local attention to 2, 4, 6, 7, 8 and 9.
  EXPECT_NEAR(recovered(recover, RecipeKind::kLocal, kText), 0.935, 1e-12);
  EXPECT_NEAR(recovered(recover, RecipeKind::kAll, kText), 1, 1e-12);
}

TEST(Recipe, TheCheapestThatRecoversEnoughIsTaken) {
  const auto kind = [](double threshold) {
    return find_recipe({.threshold = threshold, .frequent = 0.29, .local = 0.2}, kText).kind;
  };
  EXPECT_EQ(kind(0.39), RecipeKind::kSpecial);
  EXPECT_EQ(kind(0.41), RecipeKind::kPunctuation);
  EXPECT_EQ(kind(0.6), RecipeKind::kFrequent);
  EXPECT_EQ(kind(0.9), RecipeKind::kLocal);
  EXPECT_EQ(kind(0.95), RecipeKind::kAll);
  EXPECT_EQ(find_recipe({.threshold = 0.9, .frequent = 0.29, .local = 0.2}, kText),
            (Recipe{RecipeKind::kLocal, 2, 2}));
}

TEST(Recipe, FrequentTokensAreOfThoseThatNothingElseKeeps) {
  EXPECT_EQ(tokens_of({RecipeKind::kSpecial}, kText), (Kept{0}));
  EXPECT_EQ(tokens_of({RecipeKind::kPunctuation}, kText), (Kept{0, 3}));
  EXPECT_EQ(tokens_of({RecipeKind::kFrequent, 2}, kText), (Kept{0, 1, 3, 5}));
  EXPECT_EQ(tokens_of({RecipeKind::kLocal, 2, 2}, kText), (Kept{0, 1, 3, 5, 8, 9}));
  EXPECT_EQ(tokens_of({RecipeKind::kFrequent, 3}, kText), (Kept{0, 1, 3, 5, 8}));
  EXPECT_EQ(tokens_of({RecipeKind::kFrequent, 4}, kText), (Kept{0, 1, 2, 3, 5, 8}));  // 2 before 4
  EXPECT_EQ(tokens_of({RecipeKind::kAll}, kText).size(), 10U);
  EXPECT_EQ(tokens_of({RecipeKind::kLocal, 200, 300}, kText).size(), 10U);
}

TEST(Recipe, AWindowIsAShareOfTheTokensSoFarAndHoldsTheQuerysOwn) {
  const Recover recover{.local = 0.3};
  EXPECT_EQ(local_window(recover, 0), 1);
  EXPECT_EQ(local_window(recover, 5), 1);
  EXPECT_EQ(local_window(recover, 6), 2);
  EXPECT_EQ(local_window(recover, 999), 300);
}

}  // namespace
}  // namespace longhaul
