// Blocks of one head: appending, sharing, copying on write, freeing.
#include "worker/kv/head_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr KvBlockShape kShape{.block_size = 16, .head_dim = 4};

// A byte of a slot that tests write and read: block layouts do not matter here.
std::byte& mark(HeadCache& cache, std::int64_t block) {
  const auto n = static_cast<std::int64_t>(cache.blocks().size());
  return *cache.writable_block({.n_blocks = n}, block);
}

TEST(HeadCache, AppendsFillTheLastBlockFirst) {
  BlockPool pool(kShape);
  HeadCache cache(pool);
  auto place = *cache.extend(5);
  EXPECT_EQ(place.first_slot, BlockSlot{0});
  EXPECT_EQ(place.n_blocks, 1);
  place = *cache.extend(30);
  EXPECT_EQ(place.first_slot, BlockSlot{5});
  EXPECT_EQ(place.n_blocks, 3);
  ASSERT_EQ(cache.blocks().size(), 3U);
  EXPECT_EQ(cache.blocks()[0].n_tokens, 16);
  EXPECT_EQ(cache.blocks()[1].first_position, 16);
  EXPECT_EQ(cache.blocks()[2].first_position, 32);
  EXPECT_EQ(cache.blocks()[2].n_tokens, 3);
  EXPECT_EQ(cache.next_position(), TokenPos{35});
  place = *cache.extend(13);  // fills the block exactly
  EXPECT_EQ(place.n_blocks, 1);
  place = *cache.extend(1);
  EXPECT_EQ(place.first_slot, BlockSlot{0});
  EXPECT_EQ(place.n_blocks, 1);
  EXPECT_EQ(cache.extend(0)->n_blocks, 0);
  EXPECT_EQ(cache.writable_block(place, 0), cache.blocks()[3].data);
}

TEST(HeadCache, TakesBackItsNewestTokens) {
  BlockPool pool(kShape);
  HeadCache cache(pool);
  ASSERT_TRUE(cache.extend(20));
  HeadCache fork = cache.fork();
  ASSERT_TRUE(cache.extend(30));
  EXPECT_EQ(pool.n_blocks_in_use(), 5);
  cache.take_back({33});
  EXPECT_EQ(cache.next_position(), TokenPos{33});
  EXPECT_EQ(cache.n_slots(), 33);
  EXPECT_EQ(cache.extend(1)->first_slot, BlockSlot{1});
  cache.take_back({32});
  EXPECT_EQ(cache.blocks().size(), 2U);
  EXPECT_EQ(cache.extend(1)->first_slot, BlockSlot{0});
  cache.take_back({16});
  EXPECT_EQ(pool.n_blocks_in_use(), 2);  // the fork's
  EXPECT_EQ(fork.n_slots(), 20);
  fork.take_back({18});  // of a block that nobody shares any more, and one that is shared
  HeadCache other = fork.fork();
  other.take_back({17});
  ASSERT_TRUE(other.extend(1));
  EXPECT_EQ(pool.n_blocks_in_use(), 3);  // a copy: slot 17 is the fork's
  EXPECT_EQ(fork.n_slots(), 18);
  EXPECT_THROW(cache.take_back({17}), Error);
}

TEST(HeadCache, TakesBackWhatCameAfterKeptSlotsOrBlocksOfOthers) {
  BlockPool pool({.block_size = 16, .head_dim = 8});
  HeadCache kept(pool);
  ASSERT_TRUE(kept.extend(20));
  const std::vector<SlotIndex> slots = {{1}, {2}, {19}};
  ASSERT_TRUE(kept.keep(slots));
  ASSERT_TRUE(kept.extend(20));
  kept.take_back({21});
  EXPECT_EQ(kept.positions(), (std::vector<TokenPos>{{1}, {2}, {19}, {20}}));
  kept.take_back({20});
  ASSERT_TRUE(kept.extend(1));
  EXPECT_EQ(kept.blocks().front().first_position, 17);
  HeadCache split(pool);  // its second block lies on another rank
  ASSERT_TRUE(split.store({0, 16}));
  ASSERT_TRUE(split.store({32, 35}));
  split.advance_to({35});
  split.take_back({33});
  EXPECT_EQ(split.n_slots(), 17);
  split.take_back({20});
  EXPECT_EQ(split.n_slots(), 16);
}

TEST(HeadCache, AForkSharesAndCopiesOnlyThePartialBlock) {
  BlockPool pool(kShape);
  HeadCache parent(pool);
  ASSERT_TRUE(parent.extend(20));
  mark(parent, 1) = std::byte{42};
  {
    HeadCache child = parent.fork();
    EXPECT_EQ(pool.n_blocks_in_use(), 2);
    const auto place = *child.extend(3);
    EXPECT_EQ(place.first_slot, BlockSlot{4});
    EXPECT_EQ(pool.n_blocks_in_use(), 3);
    EXPECT_EQ(child.blocks()[0].data, parent.blocks()[0].data);
    EXPECT_NE(child.blocks()[1].data, parent.blocks()[1].data);
    EXPECT_EQ(mark(child, 1), std::byte{42});
    mark(child, 1) = std::byte{1};
    EXPECT_EQ(mark(parent, 1), std::byte{42});
    EXPECT_EQ(parent.blocks()[1].n_tokens, 4);
    EXPECT_EQ(child.blocks()[1].n_tokens, 7);
    // Now the parent's partial block is its own again: no copy.
    const std::byte* before = parent.blocks()[1].data;
    ASSERT_TRUE(parent.extend(1));
    EXPECT_EQ(parent.blocks()[1].data, before);
  }
  EXPECT_EQ(pool.n_blocks_in_use(), 2);
}

TEST(HeadCache, TheParentCopiesTooWhenItWritesFirst) {
  BlockPool pool(kShape);
  HeadCache parent(pool);
  ASSERT_TRUE(parent.extend(4));
  mark(parent, 0) = std::byte{9};
  HeadCache child = parent.fork();
  ASSERT_TRUE(parent.extend(1));
  mark(parent, 0) = std::byte{8};
  EXPECT_EQ(mark(child, 0), std::byte{9});
  EXPECT_EQ(child.blocks()[0].n_tokens, 4);
}

TEST(HeadCache, AForkOfFullBlocksCopiesNothing) {
  BlockPool pool(kShape);
  HeadCache parent(pool);
  ASSERT_TRUE(parent.extend(32));
  HeadCache child = parent.fork();
  ASSERT_TRUE(child.extend(1));
  EXPECT_EQ(pool.n_blocks_in_use(), 3);
  EXPECT_EQ(child.blocks()[1].data, parent.blocks()[1].data);
}

TEST(HeadCache, AFullPoolChangesNothing) {
  BlockPool pool(kShape, 3 * kShape.bytes());
  HeadCache parent(pool);
  ASSERT_TRUE(parent.extend(20));
  HeadCache child = parent.fork();
  EXPECT_FALSE(child.extend(13));  // needs a copy and one more
  EXPECT_EQ(pool.n_blocks_in_use(), 2);
  EXPECT_EQ(child.next_position(), TokenPos{20});
  EXPECT_EQ(child.blocks()[1].data, parent.blocks()[1].data);
  EXPECT_TRUE(child.extend(12));
}

TEST(HeadCache, FreesWholeFullBlocksOnly) {
  BlockPool pool(kShape);
  HeadCache cache(pool);
  ASSERT_TRUE(cache.extend(70));  // 4 full blocks and 6 tokens
  cache.free_hidden({3, 3});
  cache.free_hidden({1, 31});  // no block lies wholly inside
  EXPECT_EQ(cache.blocks().size(), 5U);
  cache.free_hidden({5, 63});  // blocks 1 and 2
  ASSERT_EQ(cache.blocks().size(), 3U);
  EXPECT_EQ(cache.blocks()[1].first_position, 48);
  cache.free_hidden({0, 70});  // all but the partial one, where appending goes on
  ASSERT_EQ(cache.blocks().size(), 1U);
  EXPECT_EQ(cache.blocks()[0].first_position, 64);
  EXPECT_EQ(pool.n_blocks_in_use(), 1);
  ASSERT_TRUE(cache.extend(11));
  EXPECT_EQ(cache.blocks()[1].first_position, 80);
  EXPECT_EQ(cache.next_position(), TokenPos{81});
}

TEST(HeadCache, AForkMayFreeWhatItsParentKeeps) {
  BlockPool pool(kShape);
  HeadCache parent(pool);
  ASSERT_TRUE(parent.extend(48));
  HeadCache child = parent.fork();
  child.free_hidden({16, 48});
  EXPECT_EQ(pool.n_blocks_in_use(), 3);
  EXPECT_EQ(parent.blocks().size(), 3U);
  EXPECT_EQ(child.blocks().size(), 1U);
}

}  // namespace
}  // namespace longhaul
