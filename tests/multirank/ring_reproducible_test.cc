// --reproducible on rings of in-process ranks: random models, plans and scripts of commands give
// the bits of one rank alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "partition/check_plan.h"
#include "tests/multirank/ring_cases.h"
#include "tests/property/worker_cases.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

struct Case {
  std::int64_t n_ranks;
  DType weights;
  bool compensates = false;  // streaming heads keep a key for what is gone
};

class ReproducibleRing : public testing::TestWithParam<Case> {};

void expect_equal_bits(std::uint64_t seed, const Case& tested) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << tested.n_ranks << " ranks");
  Random random(seed);
  ModelSpec spec = random_spec(random);
  const bool in_groups = is_integer(tested.weights);
  if (in_groups) spec.d_ff += random.integer(0, 4) * kInt8Group;
  HeadTable heads = duo_attention_heads(spec, random_roles(random, spec));
  if (tested.compensates) heads = with_compensation_keys(heads);
  const auto weights = tiny_weights(spec, tested.weights, seed);
  const KvType type = tested.weights == DType::kF32 ? KvType::kF32
                      : random.chance(0.7)          ? KvType::kBf16
                                                    : KvType::kInt8;
  const KvFormat kv{.k_type = type,
                    .v_type = type,
                    .block_size = 16 * random.integer(1, 4),
                    .head_dim = spec.head_dim};
  Worker alone({.weights = weights,
                .heads = heads,
                .k_type = kv.k_type,
                .v_type = kv.v_type,
                .block_size = kv.block_size,
                .n_threads = 1,
                .reproducible = true});
  std::vector<StepResult> want;
  const std::vector<StepCommand> script = random_script(
      random, alone, Draws::kSome, want, tested.compensates ? Guesses::kNone : Guesses::kSome);
  const std::int64_t most_stages = std::min<std::int64_t>({3, tested.n_ranks, spec.n_layers});
  const Plan plan = random_plan(random, spec, heads, tested.n_ranks, random.integer(1, most_stages),
                                kv, in_groups ? kInt8Group : 1, /*reproducible=*/true);
  const std::vector<std::string> wrong = check_structure(plan, spec, tested.n_ranks);
  ASSERT_TRUE(wrong.empty()) << wrong.front();
  const RingRun got = run_on_ring({.weights = weights, .plan = plan}, script);
  EXPECT_EQ(difference(want, got.results, /*tolerance=*/0), "");
}

TEST_P(ReproducibleRing, HasTheBitsOfOneRank) {
  for (int round = 0; round < 6 * intensity(); ++round) {
    expect_equal_bits(base_seed() * 1000 + static_cast<std::uint64_t>(round) +
                          static_cast<std::uint64_t>(GetParam().n_ranks) * 100'000,
                      GetParam());
    if (HasFailure()) return;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t n_ranks : {1, 2, 3, 4, 5, 8}) {
    for (const DType weights :
         {DType::kBf16, DType::kF32, DType::kI8, DType::kI4, DType::kF8E4m3}) {
      all.push_back({n_ranks, weights});
    }
    for (const DType weights : {DType::kBf16, DType::kF32, DType::kI8})
      all.push_back({n_ranks, weights, /*compensates=*/true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReproducibleRing, testing::ValuesIn(cases()),
                         [](const auto& tested) {
                           return std::to_string(tested.param.n_ranks) + "_" +
                                  std::string(name_of(tested.param.weights)) +
                                  (tested.param.compensates ? "_razor" : "");
                         });

}  // namespace
}  // namespace longhaul::test
