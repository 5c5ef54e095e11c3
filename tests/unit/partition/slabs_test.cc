// Zigzag slabs, by hand.
#include "partition/slabs.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using Shares = IndexedVector<RingPos, std::int64_t>;

std::vector<Slab> slabs(const Shares& shares, Extent tokens, std::int64_t block_size) {
  return slabs_of_chunk(shares, tokens, block_size);
}

TEST(Slabs, TheExampleOfTheHeader) {
  EXPECT_EQ(slabs({1, 1}, {0, 30}, 4),
            (std::vector<Slab>{{0, {0, 8}}, {1, {8, 16}}, {1, {16, 24}}, {0, {24, 30}}}));
}

TEST(Slabs, WidthsFollowShares) {
  EXPECT_EQ(slabs({3, 1}, {0, 64}, 4),
            (std::vector<Slab>{{0, {0, 24}}, {1, {24, 32}}, {1, {32, 40}}, {0, {40, 64}}}));
}

TEST(Slabs, ARankWithoutShareGetsNoTokens) {
  EXPECT_EQ(slabs({1, 0}, {0, 16}, 4),
            (std::vector<Slab>{{0, {0, 8}}, {1, {8, 8}}, {1, {8, 8}}, {0, {8, 16}}}));
}

TEST(Slabs, TheLastBlockLiesWithPositionZeroWhateverItsShare) {
  EXPECT_EQ(slabs({0, 1}, {0, 14}, 4),
            (std::vector<Slab>{{0, {0, 0}}, {1, {0, 8}}, {1, {8, 12}}, {0, {12, 14}}}));
  const auto one_token = slabs({1, 1, 1}, {1000, 1001}, 64);
  EXPECT_EQ(one_token.back(), (Slab{0, {1000, 1001}}));
}

TEST(Slabs, EdgesLieOnBlocksOfTheDocument) {
  // The chunk starts inside block 2; five blocks are touched.
  EXPECT_EQ(slabs({1, 1}, {10, 27}, 4),
            (std::vector<Slab>{{0, {10, 12}}, {1, {12, 20}}, {1, {20, 24}}, {0, {24, 27}}}));
}

TEST(Slabs, RefusesNonsense) {
  EXPECT_THROW(slabs({0, 0}, {0, 4}, 4), Error);
  EXPECT_THROW(slabs({}, {0, 4}, 4), Error);
  EXPECT_THROW(slabs({1}, {4, 4}, 4), Error);
}

TEST(Slabs, ByOwnerInTokenOrder) {
  const auto made = slabs_by_owner(slabs({1, 0, 1}, {0, 16}, 4));
  using Made = IndexedVector<RingPos, std::vector<Extent>>;
  EXPECT_EQ(made, (Made{{{0, 4}, {12, 16}}, {}, {{4, 8}, {8, 12}}}));
}

}  // namespace
}  // namespace longhaul
