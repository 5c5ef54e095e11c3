#include "tools/identify/token_rows.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace longhaul {
namespace {

ModelSpec spec_of(std::vector<std::int64_t> windows) {
  ModelSpec spec;
  spec.n_layers = static_cast<std::int64_t>(windows.size());
  spec.attention_window = std::move(windows);
  return spec;
}

constexpr std::int64_t kNone = ModelSpec::kNoWindow;

// By hand, with blocks of one token: 100 tokens of which 5 are compared, sink 2, recent 4.
TEST(TokenRows, ReachGrowsByAWindowALayer) {
  const auto sets =
      student_rows(spec_of({kNone, kNone, kNone}), {.sink = 2, .recent = 4}, 100, 5, 1);
  ASSERT_EQ(sets.size(), 4U);
  EXPECT_EQ(sets[3], (TokenSet{0, 95}));
  EXPECT_EQ(sets[2], (TokenSet{2, 92}));
  EXPECT_EQ(sets[1], (TokenSet{2, 89}));
  EXPECT_EQ(sets[0], (TokenSet{2, 86}));
}

TEST(TokenRows, LayersWithWindowsReachByThoseAndSeeNoSinks) {
  const auto sets = student_rows(spec_of({kNone, 11}), {.sink = 2, .recent = 4}, 100, 5, 1);
  EXPECT_EQ(sets[1], (TokenSet{0, 85}));
  EXPECT_EQ(sets[0], (TokenSet{2, 82}));
}

TEST(TokenRows, AreWholeBlocksAndEverythingWhenTheyMeet) {
  const auto sets = student_rows(spec_of({kNone, kNone}), {.sink = 20, .recent = 40}, 100, 5, 16);
  EXPECT_EQ(sets[2], (TokenSet{0, 80}));
  EXPECT_EQ(sets[1], (TokenSet{0, 0}));
  EXPECT_EQ(sets[0], (TokenSet{0, 0}));
  EXPECT_THROW(student_rows(spec_of({kNone}), {}, 4, 5, 16), Error);
}

// What a set's tokens see lies in the set before it.
TEST(TokenRows, EveryKeyThatIsSeenIsThere) {
  const StudentWindow window{.sink = 10, .recent = 7};
  for (const std::int64_t n_tokens : {40, 300}) {
    const auto sets = student_rows(spec_of({kNone, 20, kNone}), window, n_tokens, 9, 16);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      const std::int64_t reach = layer == 1 ? 20 : window.recent;
      const std::int64_t sink = layer == 1 ? 0 : window.sink;
      for (std::int64_t query = 0; query < n_tokens; ++query) {
        if (!sets[layer + 1].contains(query)) continue;
        for (std::int64_t key = 0; key <= query; ++key) {
          if (key < sink || query - key < reach) {
            EXPECT_TRUE(sets[layer].contains(key)) << layer << " " << query << " " << key;
          }
        }
      }
    }
  }
}

TEST(TokenRows, RanksShareEveryTokenOnce) {
  for (const std::int64_t n_ranks : {1, 2, 3, 7}) {
    const TokenDeal deal{.n_tokens = 203, .block_size = 16, .n_ranks = n_ranks};
    const TokenSet set{32, 112};
    std::multiset<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < n_ranks; ++rank) {
      const auto positions = deal.positions(set, rank);
      EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
      seen.insert(positions.begin(), positions.end());
    }
    EXPECT_EQ(seen.size(), 32U + 203U - 112U);
    EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(TokenRows, PartsOfAList) {
  const std::vector<std::int64_t> positions = {0, 1, 2, 3, 10, 11, 12};
  const RowParts parts = rows_in(positions, {2, 11});
  EXPECT_EQ(parts.first, (Extent{0, 2}));
  EXPECT_EQ(parts.last, (Extent{5, 7}));
  EXPECT_EQ(rows_in(positions, {0, 0}).size(), 7);
}

}  // namespace
}  // namespace longhaul
