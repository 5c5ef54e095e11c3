// Documents of exact lengths, with records at exact depths.
#include "tools/eval/haystack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "tools/eval/needle_plan.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

TEST(Haystack, PlacesNeedlesByHand) {
  const Tokens start = {1};
  const Tokens hay = {10, 11, 12, 13};
  const std::vector<PlacedNeedle> needles = {
      {1.0, {90}}, {0.0, {91, 92}}, {0.5, {93}}, {0.5, {94}}};
  const Haystack document =
      make_haystack({.start = start, .hay = hay, .first_hay = 2, .needles = needles, .length = 12});
  EXPECT_THAT(document.tokens, ElementsAre(1, 91, 92, 12, 13, 10, 93, 94, 11, 12, 13, 90));
  EXPECT_THAT(document.positions, ElementsAre(11, 1, 6, 7));
}

// Every length that has room: the document has it exactly, hay runs on without a gap, and each
// needle follows round(depth * hay) tokens of hay.
TEST(Haystack, IsExactForEveryLengthAndDepth) {
  Tokens hay(37);
  for (std::size_t i = 0; i < hay.size(); ++i) hay[i] = static_cast<std::int32_t>(100 + i);
  const Tokens start = {1, 2};
  std::vector<PlacedNeedle> needles;
  for (int i = 0; i <= 10; ++i) needles.push_back({i / 10.0, {-1, -2, -3}});
  for (std::int64_t length = 2 + 33; length < 300; ++length) {
    const Haystack document =
        make_haystack({.start = start, .hay = hay, .needles = needles, .length = length});
    ASSERT_EQ(static_cast<std::int64_t>(document.tokens.size()), length);
    const std::int64_t n_hay = length - 35;
    std::int64_t n_seen = 0;
    std::vector<std::int64_t> hay_before;  // of each needle
    for (std::size_t i = 2; i < document.tokens.size(); ++i) {
      if (document.tokens[i] == -1) hay_before.push_back(n_seen);
      if (document.tokens[i] < 0) continue;
      ASSERT_EQ(document.tokens[i], hay[static_cast<std::size_t>(n_seen) % hay.size()]);
      ++n_seen;
    }
    ASSERT_EQ(n_seen, n_hay);
    ASSERT_EQ(hay_before.size(), needles.size());
    for (std::size_t i = 0; i < needles.size(); ++i) {
      ASSERT_EQ(hay_before[i], std::llround(needles[i].depth * static_cast<double>(n_hay)));
      ASSERT_EQ(document.tokens[static_cast<std::size_t>(document.positions[i])], -1);
    }
  }
}

TEST(Haystack, RefusesWhatDoesNotFit) {
  const Tokens hay = {5};
  const std::vector<PlacedNeedle> needles = {{0.5, {7, 8, 9}}};
  EXPECT_NO_THROW(make_haystack({.needles = needles, .length = 3}));
  EXPECT_THROW(make_haystack({.hay = hay, .needles = needles, .length = 2}), Error);
  EXPECT_THROW(make_haystack({.needles = needles, .length = 4}), Error);  // no hay
  const std::vector<PlacedNeedle> too_deep = {{1.5, {7}}};
  EXPECT_THROW(make_haystack({.hay = hay, .needles = too_deep, .length = 9}), Error);
}

TEST(NeedlePlan, AsksEveryCellOfTheGridOncePerDocument) {
  const NeedlePlanArgs args{.lengths = {100, 200},
                            .depths = {0, 0.25, 0.5, 0.75, 1},
                            .n_documents = 3,
                            .records_per_document = 2};
  std::map<std::pair<std::int64_t, double>, int> n_asked;
  for (const PlannedDocument& document : plan_documents(args)) {
    EXPECT_LE(document.needles.size(), 2U);
    for (const PlannedNeedle& needle : document.needles) ++n_asked[{document.length, needle.depth}];
  }
  ASSERT_EQ(n_asked.size(), 10U);
  for (const auto& [cell, n] : n_asked) EXPECT_EQ(n, 3) << cell.first << " " << cell.second;
}

TEST(NeedlePlan, DoesNotDependOnOtherLengths) {
  NeedlePlanArgs args{.lengths = {100, 200}, .depths = {0, 1}, .n_documents = 2};
  const auto both = plan_documents(args);
  args.lengths = {200};
  const auto one = plan_documents(args);
  ASSERT_EQ(both.size(), 4U);
  ASSERT_EQ(one.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(both[2 + i].needles[0].record.key, one[i].needles[0].record.key);
    EXPECT_EQ(both[2 + i].needles[1].record.value, one[i].needles[1].record.value);
    EXPECT_EQ(both[2 + i].hay_draw, one[i].hay_draw);
  }
  EXPECT_EQ(one[0].hay_draw, 0U);
  EXPECT_NE(one[0].needles[0].record.value, one[1].needles[0].record.value);
  args.seed = 2;
  EXPECT_NE(plan_documents(args)[0].needles[0].record.value, one[0].needles[0].record.value);
}

}  // namespace
}  // namespace longhaul
