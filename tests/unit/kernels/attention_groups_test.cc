// Attention over caches that quantise groups of tokens (KIVI), on every device: against the
// double-precision reference, and with the same bits alone and beside other items.
#include <map>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/hopper_attention.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/attention_case.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class AttentionOverGroups : public EachDevice {
 protected:
  void TearDown() override {
    set_hopper_attention_rows(kUsualHopperRows);
    EachDevice::TearDown();
  }
  void expect_reference(const AttentionShape& shape, std::uint64_t seed) const {
    const std::string name = describe(shape) + " seed " + std::to_string(seed);
    SCOPED_TRACE(name);
    AttentionProblem problem(stream(), shape, seed);
    // Computed once for all devices.
    static std::map<std::string, reference::AttentionResult> known;
    if (!known.contains(name)) known.emplace(name, reference::attention(problem.reference_case()));
    const reference::AttentionResult& want = known.at(name);
    const Tolerance k = attention_tolerance(shape.k_type, stream().device());
    const Tolerance v = attention_tolerance(shape.v_type, stream().device());
    EXPECT_TRUE(close(problem.run(), want.out, k.absolute > v.absolute ? k : v));
  }
};
LONGHAUL_ON_EACH_DEVICE(AttentionOverGroups);

AttentionShape random_grouped_shape(Random& random) {
  AttentionShape shape = random_shape(random);
  const KvType type = kGroupedKvTypes[static_cast<std::size_t>(random.integer(0, 1))];
  (random.chance(0.5) ? shape.k_type : shape.v_type) = type;
  if (random.chance(0.5)) shape.k_type = shape.v_type = type;
  shape.head_dim = (shape.head_dim + 31) / 32 * 32;
  shape.block_size = (shape.block_size + 31) / 32 * 32;
  return shape;
}

TEST_P(AttentionOverGroups, RandomShapesMatchTheReference) {
  Random random(base_seed());
  for (int i = 0; i < 24 * intensity(); ++i) {
    expect_reference(random_grouped_shape(random), base_seed() + static_cast<std::uint64_t>(i));
    if (HasFailure()) return;
  }
}

TEST_P(AttentionOverGroups, PrefillAndDecodeMatchTheReference) {
  for (const KvType type : kGroupedKvTypes) {
    for (const std::int64_t head_dim : {32, 64, 128, 256}) {
      expect_reference({.q_len = 90,
                        .gqa_group = 3,
                        .head_dim = head_dim,
                        .n_blocks = 5,
                        .k_type = type,
                        .v_type = type,
                        .mask = {.sink = 5, .recent = 77},
                        .gaps = false},
                       base_seed());
      expect_reference({.q_len = 1,
                        .n_kv_heads = 2,
                        .gqa_group = 4,
                        .head_dim = head_dim,
                        .n_blocks = 70,
                        .k_type = type,
                        .v_type = type,
                        .gaps = false,
                        .after_keys = true},
                       base_seed());
    }
  }
}

// Every item by Hopper's kernel, where there is one, which converts the codes.
TEST_P(AttentionOverGroups, KeysThatAreConvertedMatchTheReference) {
  set_hopper_attention_rows(1);
  Random random(base_seed() + 9);
  for (int i = 0; i < 8 * intensity(); ++i) {
    AttentionShape shape = random_grouped_shape(random);
    shape.head_dim = i % 2 == 0 ? 64 : 128;
    if (shape.k_type == KvType::kF32) shape.k_type = KvType::kBf16;
    if (shape.v_type == KvType::kF32) shape.v_type = KvType::kBf16;
    expect_reference(shape, base_seed() + static_cast<std::uint64_t>(i));
    if (HasFailure()) return;
  }
}

// Queries of one document asked as forks of it, beside each other and each alone.
TEST_P(AttentionOverGroups, AForkHasTheSameBitsAlone) {
  for (const KvType type : kGroupedKvTypes) {
    for (const std::int64_t head_dim : {64, 128}) {
      AttentionProblem problem(stream(),
                               {.q_len = 13,
                                .gqa_group = 3,
                                .head_dim = head_dim,
                                .n_blocks = 40,
                                .k_type = type,
                                .v_type = type,
                                .gaps = false,
                                .after_keys = true},
                               base_seed());
      AttentionArgs args = problem.args();
      const AttentionItem& all = args.items.front();
      std::vector<AttentionItem> forks;
      for (std::int64_t t = 0; t < all.q.dim(0); ++t) {
        AttentionItem& fork = forks.emplace_back(all);
        fork.q = all.q.slice(0, {t, t + 1});
        fork.q_positions = all.q_positions.subspan(static_cast<std::size_t>(t), 1);
        fork.state = all.state.tokens({t, t + 1});
        fork.blocks = all.blocks.first(static_cast<std::size_t>(40 - 3 * (t % 5)));
        if (t % 6 == 5) fork.mask = {.sink = 100, .recent = 900};
      }
      problem.clear_state();
      args.items = forks;
      attention(stream(), args);
      const std::vector<float> together = problem.finished();
      problem.clear_state();
      for (const AttentionItem& fork : forks) {
        args.items = {&fork, 1};
        attention(stream(), args);
      }
      EXPECT_EQ(problem.finished(), together) << name_of(type) << " head_dim " << head_dim;
    }
  }
}

}  // namespace
}  // namespace longhaul::test
