// When documents are saved while they are read: what users may write, and when it is time.
#include "coordinator/checkpoint_policy.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using Unit = CheckpointEvery::Unit;

TEST(CheckpointEvery, IsReadFromWords) {
  EXPECT_EQ(checkpoint_every("16"), (CheckpointEvery{Unit::kChunks, 16}));
  EXPECT_EQ(checkpoint_every("90s"), (CheckpointEvery{Unit::kSeconds, 90}));
  EXPECT_EQ(checkpoint_every("1.5m"), (CheckpointEvery{Unit::kSeconds, 90}));
  EXPECT_EQ(checkpoint_every("2h"), (CheckpointEvery{Unit::kSeconds, 7200}));
  EXPECT_EQ(checkpoint_every("5%"), (CheckpointEvery{Unit::kCost, 0.05}));
  EXPECT_EQ(checkpoint_every("never").unit, Unit::kNever);
  for (const char* text : {"", "0", "-3", "1.5", "ten", "5x", "100%", "nan", "inf", "16 "})
    EXPECT_THROW(checkpoint_every(text), Error) << text;
}

// After how many chunks of so many seconds it is time.
int chunks_until_due(CheckpointClock& clock, double seconds, std::size_t kv_bytes = 0) {
  for (int n = 1; n < 100'000; ++n) {
    clock.chunk_done(seconds, kv_bytes);
    if (clock.take_due()) return n;
  }
  return -1;
}

TEST(CheckpointClock, CountsChunksOrSecondsAnewEachTime) {
  CheckpointClock chunks({Unit::kChunks, 3});
  EXPECT_EQ(chunks_until_due(chunks, 100), 2) << "and one beside which it is written";
  EXPECT_EQ(chunks_until_due(chunks, 0.1), 2);
  CheckpointClock each({Unit::kChunks, 1});
  EXPECT_EQ(chunks_until_due(each, 100), 1);
  CheckpointClock seconds({Unit::kSeconds, 10});
  EXPECT_EQ(chunks_until_due(seconds, 4), 3);
  EXPECT_EQ(chunks_until_due(seconds, 4), 3);
  CheckpointClock never({Unit::kNever, 0});
  EXPECT_EQ(chunks_until_due(never, 100), -1);
}

// A pipeline has chunks under way when a checkpoint is asked for, and it comes after them: so there
// are never more than three chunks between two.
TEST(CheckpointClock, ChunksUnderWayCountWhereverTheyAre) {
  for (const std::int64_t n_under_way : {0, 1, 2}) {
    CheckpointClock clock({Unit::kChunks, 3});
    std::int64_t n_saved = 0;
    for (std::int64_t n_read = 1; n_read < 30; ++n_read) {
      clock.chunk_done(0.1, 0, n_under_way);
      EXPECT_LE(n_read - n_saved, 3) << n_under_way;
      if (clock.take_due()) {
        EXPECT_LE(n_read + n_under_way - n_saved, 3);
        n_saved = n_read + n_under_way;
      }
    }
    EXPECT_GT(n_saved, 20);
  }
}

TEST(CheckpointClock, SavingTakesNoMoreThanItsShareOfTheTime) {
  CheckpointClock clock({Unit::kCost, 0.02});
  // 4 GB take 20 s at the rate that is guessed: 2 % of 1000 s.
  EXPECT_EQ(chunks_until_due(clock, 10, 4'000'000'000), 98);
  clock.checkpoint_done(4);
  EXPECT_EQ(chunks_until_due(clock, 1, 4'000'000'000), 196);
  // Written beside chunks it costs no more than they took, nor than a slow disk takes.
  clock.checkpoint_done(1, 3);
  EXPECT_EQ(chunks_until_due(clock, 1, 4'000'000'000), 196);
  clock.checkpoint_done(1, 300);
  EXPECT_EQ(chunks_until_due(clock, 1, 4'000'000'000), 21 * 49);
  clock.checkpoint_done(0.001);
  EXPECT_EQ(chunks_until_due(clock, 1), 30) << "but not for documents that are read at once";
}

}  // namespace
}  // namespace longhaul
