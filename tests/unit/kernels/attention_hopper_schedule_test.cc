// How attention is cut for the Hopper kernel.
#include "kernels/cuda/attention_hopper_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace longhaul::test {
namespace {

struct Cut {
  std::vector<KvBlockRef> blocks;
  std::vector<std::int64_t> positions;
  AttentionItem item;

  Cut(std::int64_t n_blocks, Extent queries, AttentionMask mask) {
    for (std::int64_t b = 0; b < n_blocks; ++b) blocks.push_back({nullptr, b * 64, 64});
    for (std::int64_t p = queries.begin; p < queries.end; ++p) positions.push_back(p);
    const std::int64_t q_len = queries.size();
    item = {.q = TensorView<const float, 3>(nullptr, {q_len, 4, 64}),
            .q_positions = positions,
            .blocks = blocks,
            .mask = mask,
            .state = {TensorView<float, 3>(nullptr, {q_len, 4, 64}),
                      TensorView<float, 2>(nullptr, {q_len, 4}),
                      TensorView<float, 2>(nullptr, {q_len, 4})}};
  }
  std::vector<cuda::HopperPass> passes(std::int64_t most_units) const {
    return cuda::make_hopper_passes({bf16_block(), 1.0F, {&item, 1}}, {most_units, 4});
  }
  static KvBlockShape bf16_block() {
    return {.block_size = 64, .head_dim = 64, .k_type = KvType::kBf16, .v_type = KvType::kBf16};
  }
};

// Every pair of a query and a key that it sees falls into exactly one task.
void expect_every_pair_once(const Cut& cut, std::int64_t most_units) {
  std::int64_t pairs = 0;
  for (const cuda::HopperPass& pass : cut.passes(most_units)) {
    EXPECT_LE(static_cast<std::int64_t>(pass.units.size()), most_units);
    for (const cuda::HopperTask& task : pass.tasks) {
      for (std::int32_t row = task.first_row; row < task.first_row + task.n_rows; ++row) {
        const std::int64_t query = cut.positions[static_cast<std::size_t>(row / 4)];
        for (int range = 0; range < 2; ++range) {
          for (std::int32_t u = task.first_unit[range]; u < task.end_unit[range]; ++u) {
            const cuda::KeyUnit& unit = pass.units[static_cast<std::size_t>(u)];
            for (std::int64_t key = unit.first_position; key < unit.first_position + unit.n_keys;
                 ++key) {
              pairs += cuda::is_visible(key, query, cut.item.mask.sink,
                                        std::min<std::int64_t>(cut.item.mask.recent, 1 << 30));
            }
          }
        }
      }
    }
  }
  std::int64_t want = 0;
  for (const std::int64_t query : cut.positions) {
    for (std::int64_t key = 0; key < static_cast<std::int64_t>(cut.blocks.size()) * 64; ++key) {
      want += 4 * cuda::is_visible(key, query, cut.item.mask.sink,
                                   std::min<std::int64_t>(cut.item.mask.recent, 1 << 30));
    }
  }
  EXPECT_EQ(pairs, want);
}

TEST(HopperSchedule, EveryVisiblePairIsComputedOnce) {
  for (const AttentionMask mask :
       {AttentionMask{}, AttentionMask{.sink = 100, .recent = 200}, AttentionMask{.recent = 1}}) {
    for (const std::int64_t most_units : {1000, 7, 1}) {
      expect_every_pair_once(Cut(20, {1000, 1280}, mask), most_units);
      expect_every_pair_once(Cut(20, {3, 90}, mask), most_units);
    }
  }
}

// What an item is cut into does not depend on the items before it.
TEST(HopperSchedule, ItemsAreCutAsIfAlone) {
  const Cut a(20, {1000, 1280}, {});
  const Cut b(30, {1500, 1900}, {});
  const AttentionItem both[] = {a.item, b.item};
  const std::vector<cuda::HopperPass> alone = b.passes(25);
  const std::vector<cuda::HopperPass> together =
      cuda::make_hopper_passes({Cut::bf16_block(), 1.0F, both}, {25, 4});
  ASSERT_EQ(together.size(), alone.size() + 1);
  for (std::size_t p = 0; p < alone.size(); ++p) {
    EXPECT_EQ(together[p + 1].units.size(), alone[p].units.size());
    EXPECT_EQ(together[p + 1].tasks.size(), alone[p].tasks.size());
  }
}

// A streaming head costs the same however long its history is.
TEST(HopperSchedule, StreamingHeadsReadSinkAndWindowOnly) {
  const Cut cut(2000, {127000, 127512}, {.sink = 128, .recent = 256});
  const std::vector<cuda::HopperPass> passes = cut.passes(100000);
  ASSERT_EQ(passes.size(), 1U);
  EXPECT_LE(passes[0].units.size(), 2U + (512 + 256) / 64 + 2);
  for (const cuda::HopperTask& task : passes[0].tasks) {
    const std::int32_t n =
        task.end_unit[0] - task.first_unit[0] + task.end_unit[1] - task.first_unit[1];
    EXPECT_LE(n, 2 + (256 + 32) / 64 + 2);
  }
}

}  // namespace
}  // namespace longhaul::test
