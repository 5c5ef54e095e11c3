// Zigzag slabs and halos, by hand.
#include "partition/slabs.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using Shares = std::vector<std::int64_t>;

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

TEST(Slabs, AHaloComesFromTheSlabBefore) {
  const auto cut = slabs({1, 1}, {64, 128}, 4);  // slabs of 16 tokens
  // Slab 1 begins at 80 and sees 5 tokens back: 76..79, one block of slab 0.
  const auto halo = halo_of_slab(cut, 1, 5, 4);
  ASSERT_EQ(halo.size(), 1U);
  EXPECT_EQ(halo[0].from_slab, 0);
  EXPECT_EQ(halo[0].blocks, (Extent{19, 20}));
  // Slabs 1 and 2 have the same owner.
  EXPECT_TRUE(halo_of_slab(cut, 2, 5, 4).empty());
  // The first slab needs what earlier chunks left.
  const auto history = halo_of_slab(cut, 0, 5, 4);
  ASSERT_EQ(history.size(), 1U);
  EXPECT_EQ(history[0].from_slab, HaloPiece::kHistory);
  EXPECT_EQ(history[0].blocks, (Extent{15, 16}));
}

TEST(Slabs, AHaloComesFromSeveralOwnersWhenSlabsAreShort) {
  const auto cut = slabs({1, 1, 1}, {0, 48}, 4);  // slabs of 8 tokens: 0 1 2 2 1 0
  const auto halo = halo_of_slab(cut, 4, 30, 4);  // slab 4 begins at 32: needs 3..31
  ASSERT_EQ(halo.size(), 3U);                     // slab 1 is its owner's own
  EXPECT_EQ(halo[0].from_slab, 0);
  EXPECT_EQ(halo[0].blocks, (Extent{0, 2}));
  EXPECT_EQ(halo[1].from_slab, 2);
  EXPECT_EQ(halo[2].from_slab, 3);
  EXPECT_EQ(halo[2].blocks, (Extent{6, 8}));
}

}  // namespace
}  // namespace longhaul
