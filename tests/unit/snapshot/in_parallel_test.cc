// Threads that work on pieces, and the checksum that HDF5 knows.
#include "worker/snapshot/in_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <stdexcept>
#include <vector>

#include "tests/support/random.h"
#include "worker/snapshot/fletcher32.h"
#include "worker/snapshot/pages_to_fill.h"

namespace longhaul {
namespace {

TEST(InParallel, AFailureEndsAll) {
  const auto fail = [](std::int64_t i, Piece&) {
    if (i == 40) throw std::runtime_error("bad");
  };
  EXPECT_THROW(in_parallel(300, fail), std::runtime_error);
}

TEST(InParallel, EachIsDoneOnce) {
  std::vector<std::atomic<int>> done(300);
  in_parallel(300, [&](std::int64_t i, Piece&) { ++done[static_cast<std::size_t>(i)]; });
  for (const auto& n : done) EXPECT_EQ(n, 1);
}

TEST(InParallel, ThreadsThatCheckAreMoreWhereEachHasManyPieces) {
  const int n = n_file_threads();
  EXPECT_EQ(n_checking_threads(0), n);
  EXPECT_EQ(n_checking_threads(8 * n), n);
  EXPECT_EQ(n_checking_threads(12 * n), 12 * n / 8);
  EXPECT_EQ(n_checking_threads(16 * n), 2 * n);
  EXPECT_EQ(n_checking_threads(1'000'000'000'000), 2 * n);
}

// As many as were asked for work at the same time: each waits for all others.
TEST(InParallel, HasTheThreadsItIsGiven) {
  constexpr int kThreads = 19;
  std::barrier all(kThreads);
  in_parallel(
      kThreads, [&](std::int64_t, Piece&) { all.arrive_and_wait(); }, kThreads);
}

TEST(PieceThreads, WorkOnWhatIsAllowedOneByOne) {
  std::vector<std::atomic<int>> done(100);
  std::vector<std::int64_t> given(done.size());  // just before each is allowed
  PieceThreads threads([&](std::int64_t i, Piece&) {
    const auto at = static_cast<std::size_t>(i);
    done[at] += static_cast<int>(given[at]);
  });
  for (std::size_t i = 0; i < done.size(); ++i) {
    given[i] = static_cast<std::int64_t>(i) + 1;
    threads.allow(static_cast<std::int64_t>(i) + 1);
  }
  threads.finish();
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], static_cast<int>(i) + 1);
}

TEST(PieceThreads, AFailureIsThrownAtTheEnd) {
  PieceThreads threads([](std::int64_t, Piece&) { throw std::runtime_error("bad"); });
  for (std::int64_t n = 1; n < 20; ++n) threads.allow(n);
  EXPECT_THROW(threads.finish(), std::runtime_error);
}

TEST(PieceThreads, WithoutAnEndLeaveTheRestOut) {
  std::atomic<int> n_done = 0;
  {
    PieceThreads threads([&](std::int64_t, Piece&) { ++n_done; });
    threads.allow(1000);
  }
  EXPECT_LE(n_done, 1000);
  PieceThreads idle([](std::int64_t, Piece&) {});
}

// Of blocks that lie in one page, in two, and far from each other.
TEST(PagesToFill, AreThereWithWhatTheyHeld) {
  constexpr std::size_t kBlock = 300'000;
  HostMemory memory(6 * kHugePageBytes);
  std::fill_n(memory.data() + kHugePageBytes, kBlock, std::byte{7});
  std::vector<std::byte*> blocks;
  for (const std::size_t at : {4 * kHugePageBytes, std::size_t{0}, kHugePageBytes, kBlock,
                               2 * kHugePageBytes - kBlock / 2})
    blocks.push_back(memory.data() + at);
  PagesToFill pages(blocks, kBlock);
  in_parallel(20, [&](std::int64_t i, Piece&) {
    pages.take(blocks[static_cast<std::size_t>(i) % blocks.size()]);
  });
  for (std::byte* const block : blocks) {
    const std::byte held = block == memory.data() + kHugePageBytes ? std::byte{7} : std::byte{0};
    EXPECT_EQ(std::count(block, block + kBlock, held), static_cast<std::ptrdiff_t>(kBlock));
  }
}

// The definition, a word at a time.
std::uint32_t plain_fletcher32(std::span<const std::byte> bytes) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xffffU) + (sum >> 16); };
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto second = i + 1 < bytes.size() ? static_cast<std::uint32_t>(bytes[i + 1]) : 0U;
    low = fold(low + (static_cast<std::uint32_t>(bytes[i]) << 8 | second));
    high = fold(high + low);
  }
  return high << 16 | low;
}

TEST(Fletcher32, IsWhatItsDefinitionSays) {
  test::Random random(test::base_seed());
  for (const std::int64_t n : {0, 1, 2, 3, 15, 16, 17, 5759, 5760, 5761, 100000}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(n));
    EXPECT_EQ(fletcher32(bytes), 0U) << n << " zeros";
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.integer(0, 255));
    EXPECT_EQ(fletcher32(bytes), plain_fletcher32(bytes)) << n << " random bytes";
    for (std::byte& byte : bytes) byte = std::byte{255};
    EXPECT_EQ(fletcher32(bytes), plain_fletcher32(bytes)) << n << " times 255";
  }
}

}  // namespace
}  // namespace longhaul
