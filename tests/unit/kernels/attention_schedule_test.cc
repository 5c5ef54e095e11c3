// How attention is cut for a GPU: forks of a document read its blocks once, and each item is cut as
// if it were alone.
#include "kernels/cuda/attention_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "kernels/cuda/parcel.h"

namespace longhaul::test {
namespace {

using cuda::AttentionPath;
using cuda::AttentionSchedule;
using cuda::AttentionTask;

constexpr std::int64_t kDim = 64;
constexpr std::int64_t kGroup = 4;

// Forks of one document, one query of kGroup heads each; no memory is touched.
struct Forks {
  std::vector<std::vector<KvBlockRef>> blocks;
  std::vector<std::vector<std::int64_t>> positions;
  std::vector<AttentionItem> items;

  // own_blocks: of each fork, behind the document's.
  Forks(std::int64_t document_blocks, const std::vector<std::int64_t>& own_blocks)
      : blocks(own_blocks.size()), positions(own_blocks.size()) {
    const auto* memory = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40U);
    for (std::size_t f = 0; f < own_blocks.size(); ++f) {
      for (std::int64_t b = 0; b < document_blocks + own_blocks[f]; ++b) {
        const std::int64_t place =
            b < document_blocks ? b : b + 1000 * (static_cast<std::int64_t>(f) + 1);
        blocks[f].push_back({memory + place * 64, b * 64, 64});
      }
      positions[f] = {(document_blocks + own_blocks[f]) * 64};
      items.push_back({.q = TensorView<const float, 3>(nullptr, {1, kGroup, kDim}),
                       .q_positions = positions[f],
                       .blocks = blocks[f],
                       .state = {TensorView<float, 3>(nullptr, {1, kGroup, kDim}),
                                 TensorView<float, 2>(nullptr, {1, kGroup}),
                                 TensorView<float, 2>(nullptr, {1, kGroup})}});
    }
  }
  AttentionSchedule schedule() const {
    const AttentionArgs args = {{.block_size = 64, .head_dim = kDim}, 1.0F, items};
    return cuda::make_attention_schedule(args, {.mma = true, .wide_decode = true});
  }
};

std::vector<AttentionTask> tasks_of(const AttentionSchedule& schedule) {
  std::vector<AttentionTask> out;
  for (const auto& tasks : schedule.tasks) out.insert(out.end(), tasks.begin(), tasks.end());
  return out;
}

std::int64_t blocks_read(const AttentionSchedule& schedule) {
  std::int64_t out = 0;
  for (const AttentionTask& task : tasks_of(schedule)) out += task.n_blocks;
  return out;
}

TEST(AttentionSchedule, ForksReadTheirDocumentOnce) {
  // 1024 blocks are 128 ranges of 8; eight forks of 4 heads fill a wide tile.
  const Forks forks(1000, {2, 0, 24, 5, 2, 2, 1, 7});
  EXPECT_EQ(blocks_read(forks.schedule()), 1000 + 2 + 24 + 5 + 2 + 2 + 1 + 7);
  const Forks many(1000, std::vector<std::int64_t>(17, 3));
  EXPECT_EQ(blocks_read(many.schedule()), 3 * 1000 + 17 * 3);
}

TEST(AttentionSchedule, EveryItemSeesEachOfItsBlocksOnce) {
  const Forks forks(300, {2, 0, 24, 5, 300, 2, 1, 7, 7, 7, 7});
  const AttentionSchedule schedule = forks.schedule();
  std::map<std::int64_t, std::map<const std::byte*, int>> seen;
  for (const AttentionTask& task : tasks_of(schedule)) {
    ASSERT_EQ(task.n_rows % task.member_rows, 0);
    for (std::int32_t m = 0; m < task.n_rows / task.member_rows; ++m) {
      const auto& member = schedule.members[static_cast<std::size_t>(task.first_member + m)];
      for (std::int64_t b = 0; b < task.n_blocks; ++b) {
        ++seen[member.item][schedule.blocks[static_cast<std::size_t>(task.first_block + b)].data];
      }
    }
  }
  for (std::size_t f = 0; f < forks.items.size(); ++f) {
    EXPECT_EQ(seen[static_cast<std::int64_t>(f)].size(), forks.blocks[f].size());
    for (const KvBlockRef& block : forks.blocks[f]) {
      EXPECT_EQ(seen[static_cast<std::int64_t>(f)][block.data], 1);
    }
  }
}

TEST(AttentionSchedule, ADifferentBlockInTheMiddleIsNotShared) {
  Forks forks(16, {0, 0});
  forks.blocks[1][3].data += 1 << 20U;
  EXPECT_EQ(blocks_read(forks.schedule()), 16 + 8);
}

// A streaming head costs the same however long its history is.
TEST(AttentionSchedule, StreamingHeadsReadSinkAndWindowOnly) {
  Forks forks(2000, {0});
  forks.items[0].mask = {.sink = 128, .recent = 256};
  EXPECT_LE(blocks_read(forks.schedule()), 2 + 256 / 64 + 1);
}

// What is masked for one of them is computed by each alone.
TEST(AttentionSchedule, BlocksThatARowDoesNotSeeAreNotShared) {
  Forks forks(16, {0, 0});
  for (AttentionItem& item : forks.items) item.mask = {.sink = 512, .recent = 500};
  EXPECT_EQ(blocks_read(forks.schedule()), 8 + 2 * 8);
}

// Forks of a document whose slots not all heads see have the same list of who does.
TEST(AttentionSchedule, BlocksAreSharedByThoseWhoseHeadsSeeTheSameSlots) {
  Forks forks(16, {0, 0, 0});
  const std::vector<SeenBy> seen_by(64, 5);
  const std::vector<SeenBy> others(64, 5);
  forks.blocks[0][3].seen_by = forks.blocks[1][3].seen_by = seen_by.data();
  EXPECT_EQ(blocks_read(forks.schedule()), 16 + 8);
  forks.blocks[2][3].seen_by = others.data();
  EXPECT_EQ(blocks_read(forks.schedule()), 16 + 8);
  forks.blocks[2][3].seen_by = seen_by.data();
  EXPECT_EQ(blocks_read(forks.schedule()), 16);
}

TEST(AttentionSchedule, PartsOfAParcelKeepTheirPlacesWhileTheyGrow) {
  std::size_t n_changes = 0;
  for (std::size_t n = 1000; n < 2000; ++n) {
    const std::size_t room = cuda::with_room(n);
    EXPECT_GE(room, n);
    EXPECT_LE(room, n + n / 8 + 1);
    if (room != cuda::with_room(n - 1)) ++n_changes;
  }
  EXPECT_LE(n_changes, 10U);
  EXPECT_EQ(cuda::with_room(0), 0U);
  EXPECT_EQ(cuda::with_room(1), 8U);

  const auto next_place = [](std::size_t n) {
    cuda::Parcel parcel;
    EXPECT_EQ(parcel.add(std::vector<std::int32_t>(n, 1)), 0U);
    return parcel.add(std::vector<std::int64_t>{1});
  };
  EXPECT_EQ(next_place(33), next_place(40));
  EXPECT_NE(next_place(40), next_place(41));
}

}  // namespace
}  // namespace longhaul::test
