// Attention by the kernel for Hopper's tensor cores: every item goes there, however small. On a GPU
// of another kind the same tests run the kernels that it has.
#include "kernels/attention.h"
#include "kernels/cuda/hopper_attention.h"
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

constexpr KvType kTypes[] = {KvType::kBf16, KvType::kInt8, KvType::kFp8, KvType::kInt4};

TEST_P(AttentionOnHopper, RandomShapesMatchTheReference) {
  Random random(base_seed());
  for (int i = 0; i < 30 * intensity(); ++i) {
    AttentionShape shape = random_shape(random);
    shape.head_dim = i % 2 == 0 ? 64 : 128;
    shape.k_type = kTypes[random.integer(0, std::ssize(kTypes) - 1)];
    shape.v_type = kTypes[random.integer(0, std::ssize(kTypes) - 1)];
    expect_reference(shape, base_seed() + static_cast<std::uint64_t>(i));
    if (HasFailure()) return;
  }
}

// Slots that some query heads see are left to the kernel that knows them.
TEST_P(AttentionOnHopper, SlotsThatSomeQueryHeadsSeeMatchTheReference) {
  AttentionShape shape = bf16_shape(64);
  shape.q_len = 50;
  shape.gqa_group = 3;
  shape.n_blocks = 4;
  shape.tells_heads = true;
  expect_reference(shape, base_seed());
}

// Blocks that are less than a unit of keys, one, and no whole number of them.
TEST_P(AttentionOnHopper, EveryBlockSizeMatchesTheReference) {
  for (const KvType type : kTypes) {
    for (const std::int64_t block_size : {16, 48, 64, 80, 128, 144}) {
      expect_reference({.q_len = 50,
                        .gqa_group = 3,
                        .head_dim = 64,
                        .n_blocks = 4,
                        .block_size = block_size,
                        .k_type = type,
                        .v_type = type},
                       base_seed());
    }
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

// Few rows and many keys, which are cut into ranges.
TEST_P(AttentionOnHopper, LongHistoriesMatchTheReference) {
  AttentionShape shape = bf16_shape(64);
  shape.q_len = 45;
  shape.gqa_group = 4;
  shape.n_blocks = 70;
  expect_reference(shape, base_seed());
  shape.mask = {.sink = 700, .recent = 2000};
  shape.gaps = false;
  expect_reference(shape, base_seed());
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

}  // namespace
}  // namespace longhaul::test
