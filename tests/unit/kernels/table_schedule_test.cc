// Decode attention over blocks by number is cut as it is over lists of the same blocks, and forks
// read what they share once.
#include "kernels/cuda/table_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "tests/support/random.h"

namespace longhaul::test {
namespace {

using cuda::AttentionMember;
using cuda::TableSchedule;

constexpr std::int64_t kTableDim = 64;
constexpr cuda::AttentionKernels kTableKernels = {.mma = true, .wide_decode = true};

// A block as a task reads it.
struct ReadBlock {
  const std::byte* data;
  std::int64_t first_position;
  std::int64_t n_tokens;
  bool operator==(const ReadBlock&) const = default;
};
// Of each item, its ranges by where their partial states lie in the item's.
using Cuts = std::map<std::int64_t, std::map<std::int64_t, std::vector<ReadBlock>>>;

// One sequence's head: its table, the same as a list, and its query.
struct TabledHead {
  std::vector<const std::byte*> addresses;
  std::vector<KvBlockRef> list;
  std::vector<std::int64_t> positions;
  BlockTable table;
};

TabledHead make_head(std::int64_t block_size, std::int64_t n_tokens, Extent gone,
                     std::int64_t n_queries) {
  TabledHead head;
  const auto* memory = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40U);
  for (std::int64_t i = 0; i * block_size < n_tokens; ++i) {
    head.addresses.push_back(memory + i * 64);
    if (gone.contains(i)) continue;
    head.list.push_back({.data = memory + i * 64,
                         .first_position = i * block_size,
                         .n_tokens = std::min(block_size, n_tokens - i * block_size)});
  }
  for (std::int64_t q = n_queries; q > 0; --q) head.positions.push_back(n_tokens - q);
  head.table = {.own = head.addresses.data(), .n_tokens = n_tokens, .gone = gone};
  return head;
}

AttentionItem item_of(const TabledHead& head, const AttentionMask& mask) {
  const auto n = static_cast<std::int64_t>(head.positions.size());
  return {.q = TensorView<const float, 3>(nullptr, {n, 4, kTableDim}),
          .q_positions = head.positions,
          .blocks = head.list,
          .table = head.table,
          .mask = mask,
          .state = {TensorView<float, 3>(nullptr, {n, 4, kTableDim}),
                    TensorView<float, 2>(nullptr, {n, 4}), TensorView<float, 2>(nullptr, {n, 4})}};
}

constexpr std::int64_t kPartialFloats = cuda::kDecodeRows * (kTableDim + 2);

Cuts cuts_of(const cuda::AttentionSchedule& schedule) {
  Cuts out;
  for (const auto& tasks : schedule.tasks) {
    for (const cuda::AttentionTask& task : tasks) {
      for (std::int32_t m = 0; m < task.n_rows / task.member_rows; ++m) {
        const AttentionMember& member =
            schedule.members[static_cast<std::size_t>(task.first_member + m)];
        std::vector<ReadBlock>& range = out[member.item][member.partial_at];
        for (std::int64_t b = 0; b < task.n_blocks; ++b) {
          const KvBlockRef& block = schedule.blocks[static_cast<std::size_t>(task.first_block + b)];
          range.push_back({block.data, block.first_position, block.n_tokens});
        }
      }
    }
  }
  return out;
}

// As the kernels find them.
Cuts cuts_of(const TableSchedule& schedule, std::int64_t block_size) {
  Cuts out;
  for (const auto* tasks : {&schedule.decode, &schedule.wide_decode}) {
    for (const cuda::AttentionTask& task : *tasks) {
      for (std::int32_t m = 0; m < task.n_rows / task.member_rows; ++m) {
        const AttentionMember& member =
            schedule.members[static_cast<std::size_t>(task.first_member + m)];
        // All blocks are those of the first member.
        const auto first = static_cast<std::size_t>(
            schedule.members[static_cast<std::size_t>(task.first_member)].item);
        const cuda::TableRef& table = schedule.tables[first];
        for (std::int64_t r = task.first_block; r < task.first_block + task.n_blocks; ++r) {
          const std::int64_t at =
              member.partial_at < 0 ? -1 : member.partial_at + r * kPartialFloats;
          std::vector<ReadBlock>& range = out[member.item][at];
          const std::int64_t begin = r == 0 ? 0 : end_of_range(table, r - 1, block_size);
          for (std::int64_t i = begin; i < end_of_range(table, r, block_size); ++i) {
            const KvBlockRef block = table.block(i, block_size);
            range.push_back({block.data, block.first_position, block.n_tokens});
          }
        }
      }
    }
  }
  return out;
}

TEST(TableSchedule, ItemsAreCutAsListsOfTheSameBlocksAre) {
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t block_size = std::array{16, 48, 64, 1024}[static_cast<std::size_t>(i % 4)];
    const std::int64_t n_tokens = random.integer(1, i < 200 ? 9000 : 200000);
    const std::int64_t n_queries = std::min<std::int64_t>(n_tokens, 1 + i % 3);
    AttentionMask mask;
    Extent gone;
    if (i % 2 == 1) {
      mask = {.sink = random.integer(0, 200), .recent = random.integer(1, 700)};
      // What the oldest query does not see may be gone, or not yet.
      gone.begin = (mask.sink + block_size - 1) / block_size;
      gone.end = (n_tokens - n_queries - mask.recent + 1) / block_size;
      if (gone.empty() || i % 3 == 0) gone = {};
    }
    const TabledHead head = make_head(block_size, n_tokens, gone, n_queries);
    const AttentionItem item = item_of(head, mask);
    const AttentionArgs args = {.shape = {.block_size = block_size, .head_dim = kTableDim},
                                .items = {&item, 1}};
    ASSERT_TRUE(goes_by_table(args.shape, kTableKernels, item));
    const TableSchedule by_table = make_table_schedule(args, kTableKernels);
    const cuda::AttentionSchedule by_list = make_attention_schedule(args, kTableKernels);
    EXPECT_EQ(cuts_of(by_table, block_size), cuts_of(by_list))
        << n_tokens << " tokens in blocks of " << block_size << ", sink " << mask.sink
        << ", recent " << mask.recent;
    EXPECT_EQ(by_table.n_partial_floats, by_list.n_partial_floats);
  }
}

TEST(TableSchedule, WhatIsGoneIsLookedAtByNobody) {
  const TabledHead head = make_head(16, 400, {2, 20}, 1);
  const auto goes = [&](const AttentionMask& mask) {
    return goes_by_table({.block_size = 16, .head_dim = kTableDim}, kTableKernels,
                         item_of(head, mask));
  };
  EXPECT_TRUE(goes({.sink = 32, .recent = 80}));
  EXPECT_FALSE(goes({.sink = 33, .recent = 80}));
  EXPECT_FALSE(goes({.sink = 32, .recent = 81}));
  EXPECT_FALSE(goes({}));
}

// Forks of 1,000 blocks with 3 more each: 128 ranges of 8 blocks, of which 124 and a half are
// shared.
TEST(TableSchedule, ForksReadWhatTheyShareOnce) {
  std::vector<TabledHead> forks;
  for (int f = 0; f < 9; ++f) forks.push_back(make_head(64, 1003 * 64, {}, 1));
  std::vector<AttentionItem> items;
  for (TabledHead& fork : forks) {
    fork.table.shared = forks.front().addresses.data();
    fork.table.n_shared = 1000;
    fork.table.own = fork.addresses.data() + 1000;
    items.push_back(item_of(fork, {}));
  }
  const AttentionArgs args = {.shape = {.block_size = 64, .head_dim = kTableDim}, .items = items};
  const TableSchedule schedule = make_table_schedule(args, kTableKernels);
  EXPECT_EQ(cuts_of(schedule, 64), cuts_of(make_attention_schedule(args, kTableKernels)));
  ASSERT_EQ(schedule.wide_decode.size(), 1);  // eight of 4 rows
  EXPECT_EQ(schedule.wide_decode.front().n_rows, 32);
  EXPECT_EQ(schedule.wide_decode.front().n_blocks, 125);
  EXPECT_EQ(schedule.decode.size(), 1 + 9);  // the ninth, and what each has of its own
  // Others share nothing, though their numbers are equal.
  for (AttentionItem& item : items) item.table->n_shared = 0;
  EXPECT_TRUE(make_table_schedule(args, kTableKernels).wide_decode.empty());
}

TEST(TableSchedule, GrowsBySteps) {
  std::size_t n_changes = 0;
  std::int64_t n_ranges = 0;
  for (std::int64_t n_tokens = 1; n_tokens < 300000; n_tokens += 97) {
    const TabledHead head = make_head(64, n_tokens, {}, 1);
    const AttentionItem item = item_of(head, {});
    const AttentionArgs args = {.shape = {.block_size = 64, .head_dim = kTableDim},
                                .items = {&item, 1}};
    const TableSchedule schedule = make_table_schedule(args, kTableKernels);
    n_changes += schedule.n_ranges == n_ranges ? 0 : 1;
    n_ranges = schedule.n_ranges;
    EXPECT_LE(schedule.tables.front().n_ranges, n_ranges);
  }
  EXPECT_EQ(n_changes, 8);  // 1, 2, 4 ... 128
}

}  // namespace
}  // namespace longhaul::test
