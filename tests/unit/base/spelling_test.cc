#include "base/spelling.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(SpellingDistance, CountsSlips) {
  EXPECT_EQ(spelling_distance("", "abc"), 3U);
  EXPECT_EQ(spelling_distance("abc", "abc"), 0U);
  EXPECT_EQ(spelling_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(spelling_distance("rnu", "run"), 1U);  // exchanged
}

TEST(Nearly, FindsTheNearest) {
  EXPECT_EQ(nearly("rnu", {"plan", "run", "bench"}), "run");
  EXPECT_EQ(nearly("Cache-Type-K", {"cache_type_k", "cache_type_v"}), "cache_type_k");
  EXPECT_EQ(nearly("xyz", {"plan", "run"}), "");
  EXPECT_EQ(nearly("ab", {"cd"}), "");
}

}  // namespace
}  // namespace longhaul
