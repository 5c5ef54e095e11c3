// The pool's promises: zeroed blocks, owners counted, the limit kept, memory really given back.
#include "worker/kv/block_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace longhaul {
namespace {

// 16 tokens x 8 x (4 + 4) bytes = 1 KiB.
constexpr KvBlockShape kSmall{.block_size = 16, .head_dim = 8};
// 64 tokens x 128 x 8 bytes = 64 KiB: 32 in a slab.
constexpr KvBlockShape kLarge{.block_size = 64, .head_dim = 128};

bool is_zero(const std::byte* data, std::size_t n) {
  return std::all_of(data, data + n, [](std::byte b) { return b == std::byte{0}; });
}

TEST(BlockPool, BlocksAreZeroAlsoWhenTheyWereUsedBefore) {
  BlockPool pool(kSmall);
  const BlockId other = *pool.take();  // keeps the slab
  for (int i = 0; i < 3; ++i) {
    const BlockId id = *pool.take();
    EXPECT_TRUE(is_zero(pool.data(id), kSmall.bytes()));
    std::memset(pool.data(id), 0xFF, kSmall.bytes());
    pool.release(id);
  }
  pool.release(other);
}

TEST(BlockPool, CountsOwners) {
  BlockPool pool(kSmall);
  const BlockId id = *pool.take();
  EXPECT_FALSE(pool.is_shared(id));
  pool.share(id);
  EXPECT_TRUE(pool.is_shared(id));
  pool.release(id);
  EXPECT_FALSE(pool.is_shared(id));
  EXPECT_EQ(pool.bytes_in_use(), kSmall.bytes());
  pool.release(id);
  EXPECT_EQ(pool.bytes_in_use(), 0U);
}

TEST(BlockPool, LimitIsExactAndNoBlockIsAnOutcome) {
  BlockPool pool(kSmall, 5 * kSmall.bytes() + 100);
  std::vector<BlockId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(*pool.take());
  EXPECT_FALSE(pool.take().has_value());
  EXPECT_LE(pool.bytes_reserved(), 5 * kSmall.bytes());
  pool.release(ids.back());
  ids.back() = *pool.take();
  EXPECT_FALSE(pool.take().has_value());
  for (const BlockId id : ids) pool.release(id);
}

TEST(BlockPool, LimitBelowOneBlockGivesNone) {
  BlockPool pool(kSmall, kSmall.bytes() - 1);
  EXPECT_FALSE(pool.take().has_value());
  EXPECT_EQ(pool.bytes_reserved(), 0U);
}

// Resident bytes of a range of addresses; -1 when (part of) it is not mapped at all.
std::int64_t resident_bytes(void* address, std::size_t n_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((n_bytes + page - 1) / page);
  if (::mincore(address, n_bytes, pages.data()) != 0) return -1;
  return static_cast<std::int64_t>(page) *
         std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

TEST(BlockPool, EmptySlabsGoBackToTheSystem) {
  BlockPool pool(kLarge);
  std::vector<BlockId> ids;
  for (int i = 0; i < 96; ++i) {
    ids.push_back(*pool.take());
    std::memset(pool.data(ids.back()), 1, kLarge.bytes());
  }
  const std::size_t slab_bytes = 32 * kLarge.bytes();
  EXPECT_EQ(pool.bytes_reserved(), 3 * slab_bytes);
  std::vector<std::byte*> slabs;
  for (std::size_t i = 0; i < 96; i += 32) slabs.push_back(pool.data(ids[i]));
  for (std::byte* slab : slabs) {
    EXPECT_EQ(resident_bytes(slab, slab_bytes), static_cast<std::int64_t>(slab_bytes));
  }

  for (std::size_t i = 32; i < 96; ++i) pool.release(ids[i]);
  EXPECT_EQ(pool.bytes_in_use(), slab_bytes);
  EXPECT_EQ(pool.bytes_reserved(), 2 * slab_bytes) << "one empty slab is kept";
  EXPECT_EQ(resident_bytes(slabs[2], slab_bytes), -1);

  for (std::size_t i = 0; i < 32; ++i) pool.release(ids[i]);
  EXPECT_EQ(pool.bytes_reserved(), 0U) << "and none when nothing is in use";
  for (std::byte* slab : slabs) EXPECT_EQ(resident_bytes(slab, slab_bytes), -1);
}

TEST(BlockPool, ABlockThatComesAndGoesCostsNoSlab) {
  BlockPool pool(kLarge);
  std::vector<BlockId> ids;
  for (int i = 0; i < 32; ++i) ids.push_back(*pool.take());
  const BlockId extra = *pool.take();
  const std::size_t reserved = pool.bytes_reserved();
  pool.release(extra);
  EXPECT_EQ(pool.bytes_reserved(), reserved);
  pool.release(*pool.take());
  EXPECT_EQ(pool.bytes_reserved(), reserved);
  for (const BlockId id : ids) pool.release(id);
}

TEST(BlockPool, RandomUseNeverGivesABlockTwice) {
  test::Random random(test::base_seed());
  BlockPool pool(kLarge, 100 * kLarge.bytes());
  std::vector<BlockId> live;
  std::set<std::byte*> addresses;
  for (int i = 0; i < 3000; ++i) {
    if (random.chance(i % 600 < 300 ? 0.7 : 0.3)) {
      const auto id = pool.take();
      ASSERT_EQ(id.has_value(), live.size() < 100);
      if (!id) continue;
      ASSERT_TRUE(addresses.insert(pool.data(*id)).second);
      live.push_back(*id);
    } else if (!live.empty()) {
      const auto at =
          static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(live.size()) - 1));
      addresses.erase(pool.data(live[at]));
      pool.release(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_EQ(pool.bytes_in_use(), live.size() * kLarge.bytes());
    ASSERT_LE(pool.bytes_reserved(), 100 * kLarge.bytes());
    ASSERT_GE(pool.bytes_reserved(), pool.bytes_in_use());
  }
  for (const BlockId id : live) pool.release(id);
  EXPECT_EQ(pool.bytes_reserved(), 0U);
}

}  // namespace
}  // namespace longhaul
