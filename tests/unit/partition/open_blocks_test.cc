// Which blocks of a chunk are whole, and which lie open before and after it, by hand.
#include "partition/open_blocks.h"

#include <gtest/gtest.h>

#include "partition/ring_bytes.h"

namespace longhaul {
namespace {

const KvFormat kKivi{KvType::kKivi4, KvType::kF32, 4, 32};
const KvFormat kInt4{KvType::kInt4, KvType::kF32, 4, 32};

const std::vector<Slab> kExample{
    {RingPos{0}, {6, 8}}, {RingPos{1}, {8, 16}}, {RingPos{0}, {16, 21}}};

TEST(OpenBlocks, TheExampleOfTheHeader) {
  EXPECT_EQ(
      stored_slabs(kExample, kKivi),
      (std::vector<Slab>{{RingPos{0}, {4, 8}}, {RingPos{1}, {8, 16}}, {RingPos{0}, {16, 20}}}));
  EXPECT_EQ(begun_block(kExample, kKivi), (OpenBlock{{4, 6}, RingPos{0}}));
  EXPECT_EQ(unfinished_block(kExample, kKivi), (OpenBlock{{20, 21}, RingPos{0}}));
}

TEST(OpenBlocks, ChunksWithinABlockStoreNothingUntilItIsFull) {
  const std::vector<Slab> within{{RingPos{0}, {5, 5}}, {RingPos{1}, {5, 5}}, {RingPos{0}, {5, 7}}};
  EXPECT_EQ(slabs_by_owner(stored_slabs(within, kKivi))[RingPos{0}], std::vector<Extent>{});
  EXPECT_EQ(begun_block(within, kKivi), (OpenBlock{{4, 5}, RingPos{0}}));
  EXPECT_EQ(unfinished_block(within, kKivi), (OpenBlock{{5, 7}, RingPos{0}}));
  const std::vector<Slab> last{{RingPos{1}, {7, 7}}, {RingPos{0}, {7, 8}}};
  EXPECT_EQ(stored_slabs(last, kKivi).back(), (Slab{RingPos{0}, {4, 8}}));
  EXPECT_EQ(unfinished_block(last, kKivi), std::nullopt);
}

TEST(OpenBlocks, WholeBlocksAndOtherTypesHaveNone) {
  const std::vector<Slab> whole{{RingPos{0}, {8, 12}}, {RingPos{1}, {12, 16}}};
  EXPECT_EQ(stored_slabs(whole, kKivi), whole);
  EXPECT_EQ(begun_block(whole, kKivi), std::nullopt);
  EXPECT_EQ(unfinished_block(whole, kKivi), std::nullopt);
  EXPECT_EQ(stored_slabs(kExample, kInt4), kExample);
  EXPECT_EQ(begun_block(kExample, kInt4), std::nullopt);
  EXPECT_EQ(unfinished_block(kExample, kInt4), std::nullopt);
}

// Of two heads at home with position 1 both blocks make a way, of one at home with their maker
// none.
TEST(OpenBlocks, TravelBetweenHomesAndMakers) {
  Stage stage;
  stage.layers = {0, 1};
  stage.ring = {Rank{0}, Rank{1}};
  const Home at_0{{{Rank{0}, 1}}};
  const Home at_1{{{Rank{1}, 1}}};
  stage.home = {{at_0, at_1, at_1}};
  const auto sent = open_bytes_sent(stage, kExample, LayerId{0}, kKivi);
  const std::int64_t block = 2 * 4 * 32 * 4;
  EXPECT_EQ(sent[RingPos{0}], 2 * block);
  EXPECT_EQ(sent[RingPos{1}], 2 * block);
}

}  // namespace
}  // namespace longhaul
