// Attention by the kernel for Hopper's tensor cores: every item goes there, however small. On a GPU
// of another kind the same tests run the kernels that it has.
#include "kernels/attention.h"
#include "kernels/cuda/attention_hopper_schedule.h"
#include "kernels/hopper_attention.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/attention_case.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class AttentionOnHopper : public EachDevice {
 protected:
  void SetUp() override {
    EachDevice::SetUp();
    set_hopper_attention_rows(1);
  }
  void TearDown() override {
    set_hopper_attention_rows(kUsualHopperRows);
    EachDevice::TearDown();
  }
  void expect_reference(const AttentionShape& shape, std::uint64_t seed) const {
    SCOPED_TRACE(describe(shape) + " seed " + std::to_string(seed));
    AttentionProblem problem(stream(), shape, seed);
    const std::vector<float> got = problem.run();
    EXPECT_TRUE(close(got, reference::attention(problem.reference_case()).out,
                      attention_tolerance(KvType::kBf16, stream().device())));
  }
};
INSTANTIATE_TEST_SUITE_P(Device, AttentionOnHopper,
                         testing::Values(ComputeDevice{Device::kCuda, {}}), device_test_name);

AttentionShape bf16_shape(std::int64_t head_dim) {
  return {.head_dim = head_dim, .k_type = KvType::kBf16, .v_type = KvType::kBf16};
}

TEST_P(AttentionOnHopper, RandomShapesMatchTheReference) {
  Random random(base_seed());
  for (int i = 0; i < 30 * intensity(); ++i) {
    AttentionShape shape = random_shape(random);
    shape.head_dim = i % 2 == 0 ? 64 : 128;
    shape.k_type = shape.v_type = KvType::kBf16;
    expect_reference(shape, base_seed() + static_cast<std::uint64_t>(i));
    if (HasFailure()) return;
  }
}

// Blocks that are less than a unit of keys, one, and no whole number of them.
TEST_P(AttentionOnHopper, EveryBlockSizeMatchesTheReference) {
  for (const std::int64_t block_size : {16, 48, 64, 80, 128, 144}) {
    AttentionShape shape = bf16_shape(64);
    shape.q_len = 50;
    shape.gqa_group = 3;
    shape.n_blocks = 4;
    shape.block_size = block_size;
    expect_reference(shape, base_seed());
  }
}

TEST_P(AttentionOnHopper, CausalAndStreamingPrefillMatchTheReference) {
  for (const std::int64_t head_dim : {64, 128}) {
    AttentionShape shape = bf16_shape(head_dim);
    shape.q_len = 400;
    shape.gqa_group = 2;
    shape.n_blocks = 12;
    shape.gaps = false;
    expect_reference(shape, base_seed());
    shape.mask = {.sink = 70, .recent = 100};
    expect_reference(shape, base_seed());
    shape.mask = {.sink = 0, .recent = 65};
    expect_reference(shape, base_seed());
  }
}

// Retrieval and streaming heads in one call, beside an item for another kernel: the bits of each
// alone.
TEST_P(AttentionOnHopper, ItemsDoNotDependOnEachOther) {
  AttentionShape shape = bf16_shape(128);
  shape.q_len = 90;
  shape.n_kv_heads = 2;
  shape.gqa_group = 3;
  shape.n_blocks = 6;
  AttentionProblem dense(stream(), shape, base_seed());
  shape.mask = {.sink = 64, .recent = 100};
  AttentionProblem streaming(stream(), shape, base_seed() + 1);
  shape.q_len = 3;
  AttentionProblem small(stream(), shape, base_seed() + 2);
  set_hopper_attention_rows(100);
  AttentionProblem* const problems[] = {&small, &dense, &streaming};
  std::vector<std::vector<float>> alone;
  std::vector<AttentionItem> items;
  for (AttentionProblem* problem : problems) {
    alone.push_back(problem->run());
    problem->clear_state();
    const AttentionArgs own = problem->args();
    items.insert(items.end(), own.items.begin(), own.items.end());
  }
  AttentionArgs args = dense.args();
  args.items = items;
  attention(stream(), args);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(problems[i]->finished(), alone[i]);
}

TEST_P(AttentionOnHopper, KeysSplitOverCallsGiveTheSame) {
  AttentionShape shape = bf16_shape(64);
  shape.q_len = 70;
  shape.n_blocks = 7;
  AttentionProblem problem(stream(), shape, base_seed());
  const std::vector<float> whole = problem.run();
  problem.clear_state();
  AttentionArgs args = problem.args();
  for (const Extent part : {Extent{3, 7}, Extent{0, 3}}) {
    const std::vector<AttentionItem> items = problem.items_with_blocks(part);
    args.items = items;
    attention(stream(), args);
  }
  EXPECT_TRUE(
      close(problem.finished(), whole, attention_tolerance(KvType::kBf16, stream().device())));
}

TEST_P(AttentionOnHopper, NanIsNotSwallowed) {
  AttentionShape shape = bf16_shape(64);
  shape.q_len = 2;
  AttentionProblem problem(stream(), shape, base_seed());
  const std::vector<float> q(static_cast<std::size_t>(2 * 64), std::nanf(""));
  const Memory q_there(stream(), q);
  AttentionArgs args = problem.args();
  std::vector<AttentionItem> items(args.items.begin(), args.items.end());
  items[0].q = TensorView<const float, 3>(q_there.data(), {2, 1, 64});
  args.items = items;
  problem.clear_state();
  attention(stream(), args);
  const std::vector<float> out = problem.finished();
  EXPECT_TRUE(std::isnan(out.back()));
}

// --- how it is cut ------------------------------------------------------------------------------

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
    return cuda::make_hopper_passes({bf16_block(), 1.0F, {&item, 1}}, most_units);
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
