#include "coordinator/stop_matcher.h"

#include <gtest/gtest.h>

#include "tests/support/random.h"

namespace longhaul {
namespace {

struct Cut {
  std::string text;
  bool stopped = false;
  bool operator==(const Cut&) const = default;
};

Cut cut(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  std::string text;
  for (const std::string& piece : pieces) text += matcher.push(piece);
  const bool stopped = matcher.stopped();
  return {text + matcher.finish(), stopped};
}

TEST(StopMatcher, CutsAtTheStopString) {
  EXPECT_EQ(cut({"END"}, {"abcENDdef"}), (Cut{"abc", true}));
  EXPECT_EQ(cut({"END"}, {"ab", "cE", "N", "Dd", "ef"}), (Cut{"abc", true}));
  EXPECT_EQ(cut({"END"}, {"abcEN"}), (Cut{"abcEN", false}));
  EXPECT_EQ(cut({}, {"abc", "def"}), (Cut{"abcdef", false}));
  EXPECT_EQ(cut({"aab"}, {"aa", "ab"}), (Cut{"a", true}));  // the match begins inside a failed one
  EXPECT_EQ(cut({"b", "abc"}, {"abc"}), (Cut{"a", true}));  // the one that ends first
  EXPECT_EQ(cut({"c", "abc"}, {"abc"}), (Cut{"", true}));   // of two that end together, the longest
}

// What min_tokens asks for: a stop string may begin in text that was passed, not end there.
TEST(StopMatcher, StopStringsThatEndInPassedTextDoNotCount) {
  StopMatcher matcher({"END", "aa"});
  EXPECT_EQ(matcher.pass("1END2 EN"), "1END2 ");
  EXPECT_EQ(matcher.push("x"), "ENx");
  EXPECT_EQ(matcher.pass("aab EN"), "aab ");
  EXPECT_EQ(matcher.push("D3"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.found(), "END");
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"\n\n", "STOP"});
  EXPECT_EQ(matcher.push("one\n"), "one");
  EXPECT_EQ(matcher.push("two S"), "\ntwo ");
  EXPECT_EQ(matcher.push("T"), "");
  EXPECT_EQ(matcher.push("x"), "STx");
  EXPECT_EQ(matcher.push("STOPmore"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("again"), "");
}

TEST(StopMatcher, DoesNotDependOnThePieces) {
  for (int round = 0; round < 2000 * test::intensity(); ++round) {
    test::Random random(test::base_seed() * 10000 + static_cast<std::uint64_t>(round));
    const auto word = [&](std::int64_t min, std::int64_t max) {
      std::string text;
      for (std::int64_t n = random.integer(min, max); n > 0; --n)
        text += random.chance(0.5) ? 'a' : 'b';
      return text;
    };
    std::vector<std::string> stops;
    for (std::int64_t n = random.integer(1, 3); n > 0; --n) stops.push_back(word(2, 6));
    const std::string text = word(0, 30);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const auto n = static_cast<std::size_t>(random.integer(1, 5));
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    EXPECT_EQ(cut(stops, pieces), cut(stops, {text})) << "round " << round;
  }
}

}  // namespace
}  // namespace longhaul
