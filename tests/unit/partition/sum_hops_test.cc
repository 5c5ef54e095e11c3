// Who hands on the sums of what windows have left behind, by hand.
#include "partition/sum_hops.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

using Hops = std::vector<SumHop>;

// A chunk over equal ranks in blocks of 4 tokens.
std::vector<Slab> cut(std::int64_t n_ranks, Extent tokens) {
  return slabs_of_chunk(IndexedVector<RingPos, std::int64_t>(static_cast<std::size_t>(n_ranks), 1),
                        tokens, 4);
}

TEST(SumHops, TheExampleOfTheHeader) {
  const std::vector<RingPos> homes{{1}};
  EXPECT_EQ(
      sum_hops(cut(2, {40, 56}), {.sink = 4, .recent = 5}, homes),
      (Hops{{{1}, {0}, 40, {0}}, {{0}, {1}, 44, {0}}, {{1}, {0}, 52, {0}}, {{0}, {1}, 56, {0}}}));
}

TEST(SumHops, HeadsOfOneHomeLeaveAndComeHomeTogether) {
  const std::vector<RingPos> homes{{1}, {0}, {1}};
  EXPECT_EQ(sum_hops(cut(2, {40, 56}), {.sink = 4, .recent = 5}, homes),
            (Hops{{{1}, {0}, 40, {0, 2}},
                  {{0}, {1}, 44, {0, 1, 2}},
                  {{1}, {0}, 52, {0, 1, 2}},
                  {{0}, {1}, 56, {0, 2}}}));
}

TEST(SumHops, NothingIsHandedOnBeforeATokenIsGone) {
  const std::vector<RingPos> homes{{1}};
  const std::vector<Slab> slabs = cut(2, {0, 16});
  EXPECT_EQ(sum_hops(slabs, {.sink = 3, .recent = 13}, homes),
            (Hops{{{0}, {1}, 16, {0}}}));  // the query at 16 is the first that does not see token 3
  EXPECT_TRUE(sum_hops(slabs, {.sink = 3, .recent = 14}, homes).empty());
}

TEST(SumHops, SlabsWithoutTokensAndHomesThatHaveThemAreLeftOut) {
  // One block: the last slab, of position 0.
  EXPECT_TRUE(
      sum_hops(cut(3, {41, 43}), {.sink = 0, .recent = 5}, std::vector<RingPos>{{0}}).empty());
  EXPECT_EQ(sum_hops(cut(3, {41, 43}), {.sink = 0, .recent = 5}, std::vector<RingPos>{{2}}),
            (Hops{{{2}, {0}, 41, {0}}, {{0}, {2}, 43, {0}}}));
}

TEST(SumHops, BytesAreTwoVectorsOfDoublesForEachHead) {
  const auto hops =
      sum_hops(cut(2, {40, 56}), {.sink = 4, .recent = 5}, std::vector<RingPos>{{1}, {0}, {1}});
  const auto sent = sum_bytes_sent(hops, 2, 128);
  EXPECT_EQ(sent[RingPos{0}], (3 + 2) * 2 * 128 * 8);
  EXPECT_EQ(sent[RingPos{1}], (2 + 3) * 2 * 128 * 8);
}

}  // namespace
}  // namespace longhaul
