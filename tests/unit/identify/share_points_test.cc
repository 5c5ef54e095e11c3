// What a search that was stopped finds again, and when it does not.
#include "tools/identify/share_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

Json made_by(const char* gates) { return JsonObject{{"method", "echo"}, {"gates_sha256", gates}}; }

TEST(SharePoints, AreFoundAgainBitForBit) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "share.json";
  const TriedShare third{.n_heads = 3, .right = 1.0 / 3, .distance = 0.1 + 0.2};
  {
    SharePoints points(path, made_by("a"));
    EXPECT_FALSE(points.find(3));
    points.add(third);
    points.add({.n_heads = 16, .right = 1});
  }
  const SharePoints points(path, made_by("a"));
  EXPECT_EQ(points.size(), 2U);
  ASSERT_TRUE(points.find(3));
  EXPECT_EQ(points.find(3)->right, third.right);
  EXPECT_EQ(points.find(3)->distance, third.distance);
  EXPECT_FALSE(points.find(4));
}

TEST(SharePoints, OfOtherGatesAreNotTaken) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "share.json";
  SharePoints(path, made_by("a")).add({.n_heads = 3});
  SharePoints other(path, made_by("b"));
  EXPECT_EQ(other.size(), 0U);
  EXPECT_THAT(other.differences(), testing::ElementsAre(testing::HasSubstr("gates_sha256")));
  other.add({.n_heads = 5});
  const SharePoints again(path, made_by("b"));
  EXPECT_EQ(again.size(), 1U);
  EXPECT_TRUE(again.find(5));
}

TEST(SharePoints, OfABrokenFileAreRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "share.json";
  for (const char* text : {"{", "{}", R"({"version": 2})",
                           R"({"version": 1, "made_by": {"method": "echo", "gates_sha256": "a"},
                               "tried": [{"heads": -1, "right": 0, "distance": 0}]})"}) {
    replace_file(path, text);
    EXPECT_THROW(SharePoints(path, made_by("a")), Error) << text;
  }
}

TEST(SharePoints, WithoutAFileAreKeptInMemoryAlone) {
  SharePoints points({}, made_by("a"));
  points.add({.n_heads = 2});
  EXPECT_TRUE(points.find(2));
}

}  // namespace
}  // namespace longhaul
