#include "tools/identify/share_search.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longhaul {
namespace {

// A model that needs `needed` of `all` heads.
ShareSearch search(std::int64_t needed, std::int64_t all, int& n_tries) {
  return *find_smallest_share(all, 0.99, [&](std::int64_t n) {
    ++n_tries;
    return TriedShare{.n_heads = n, .right = n >= needed ? 0.8 : 0.5, .distance = 0.001};
  });
}

TEST(ShareSearch, FindsTheFewestHeadsByBisection) {
  for (const std::int64_t needed : {0, 1, 7, 200, 255, 256}) {
    int n_tries = 0;
    const ShareSearch found = search(needed, 256, n_tries);
    EXPECT_EQ(found.n_needed, needed);
    EXPECT_LE(n_tries, 2 + 8);
    EXPECT_TRUE(std::is_sorted(
        found.tried.begin(), found.tried.end(),
        [](const TriedShare& a, const TriedShare& b) { return a.n_heads < b.n_heads; }));
  }
}

TEST(ShareSearch, DistanceAloneCanAskForMore) {
  const ShareSearch found = *find_smallest_share(16, 0.9, [](std::int64_t n) {
    return TriedShare{.n_heads = n, .right = 1, .distance = n >= 5 ? 0.05 : 0.3};
  });
  EXPECT_EQ(found.n_needed, 5);
  const std::string text = to_text(found, 16, 0.9);
  EXPECT_NE(text.find("5 of 16 heads are enough for 0.9: --retrieval-ratio 0.3125"),
            std::string::npos);
  EXPECT_NE(to_picture(found, 16).find("<svg"), std::string::npos);
}

TEST(ShareSearch, EndsWhereNothingMoreIsTried) {
  for (const int n_most : {0, 1, 3}) {
    int n_tries = 0;
    const auto attempt = [&](std::int64_t n) -> std::optional<TriedShare> {
      if (n_tries == n_most) return std::nullopt;
      ++n_tries;
      return TriedShare{.n_heads = n, .right = n >= 5 ? 1.0 : 0.0};
    };
    EXPECT_FALSE(find_smallest_share(16, 0.9, attempt));
    EXPECT_EQ(n_tries, n_most);
  }
}

}  // namespace
}  // namespace longhaul
