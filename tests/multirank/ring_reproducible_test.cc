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
  bool in_groups = false;    // caches quantise groups of tokens
};

class ReproducibleRing : public testing::TestWithParam<Case> {};

void expect_equal_bits(std::uint64_t seed, const Case& tested) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << tested.n_ranks << " ranks");
  Random random(seed);
  ModelSpec spec = random_spec(random);
  const bool in_groups = is_integer(tested.weights);
  if (in_groups) spec.d_ff += random.integer(0, 4) * kInt8Group;
  if (tested.in_groups) spec.head_dim = kKvGroup * random.integer(1, 2);
  HeadTable heads = duo_attention_heads(spec, random_roles(random, spec));
  if (tested.compensates) heads = with_compensation_keys(heads);
  const auto weights = tiny_weights(spec, tested.weights, seed);
  const KvType type = tested.in_groups                ? kGroupedKvTypes[seed % 2]
                      : tested.weights == DType::kF32 ? KvType::kF32
                      : random.chance(0.7)            ? KvType::kBf16
                      : random.chance(0.5)            ? KvType::kFp8
                                                      : KvType::kInt8;
  const KvFormat kv{.k_type = type,
                    .v_type = type,
                    .block_size = (tested.in_groups ? kKvGroup : 16) * random.integer(1, 4),
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
  for (int round = 0; round < engine_cases(6); ++round) {
    expect_equal_bits(base_seed() * 1000 + static_cast<std::uint64_t>(round) +
                          static_cast<std::uint64_t>(GetParam().n_ranks) * 100'000,
                      GetParam());
    if (HasFailure()) return;
  }
}

// Chunks that begin and end within blocks, as long as blocks and whole; forks within a block, while
// the document goes on; batches over the ends of blocks. Lopsided shares of tokens.
class ReproducibleGroups : public testing::TestWithParam<std::int64_t> {};

TEST_P(ReproducibleGroups, HaveTheBitsOfOneRankWhereverChunksCutThem) {
  const std::int64_t n_ranks = GetParam();
  ModelSpec spec = tiny_spec();
  spec.head_dim = kKvGroup;
  Random random(base_seed());
  HeadRoles roles = random_roles(random, spec);
  roles.roles[0] = HeadRole::kRetrieval;
  const HeadTable heads = duo_attention_heads(spec, roles);
  const auto weights = tiny_weights(spec, DType::kF32, base_seed());
  const KvFormat kv{KvType::kKivi4, KvType::kKivi2, kKvGroup, spec.head_dim};
  Plan plan = random_plan(random, spec, heads, n_ranks, 1, kv, 1, /*reproducible=*/true);
  auto& shares = plan.replicas.front().stages.front().token_share;
  for (std::int64_t& share : shares) share = 0;
  shares.back() = Stage::kTokenShareTotal;
  for (const std::int64_t chunk_len : {1, 7, 32, 45, 64, 109}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk_len);
    std::vector<StepCommand> script{OpenSequence{{0}, {}}};
    const auto tokens = [&](std::int64_t n) { return random_tokens(random, n, spec.vocab_size); };
    for (const std::int64_t n : equal_chunks(109, chunk_len))
      script.push_back(PrefillChunk{{0}, tokens(n), AfterPrefill::kNothing, 2});
    std::vector<DecodeBatch::Row> rows;
    for (const std::int64_t id : {1, 2}) {
      script.push_back(ForkSequence{{0}, {id}, {}});
      script.push_back(PrefillChunk{{id}, tokens(10 * id), AfterPrefill::kSample, 2});
      rows.push_back({{id}, 0});
    }
    script.push_back(PrefillChunk{{0}, tokens(30), AfterPrefill::kNothing, 2});
    for (int i = 0; i < 40; ++i) {
      for (DecodeBatch::Row& row : rows) row.token = tokens(1).front();
      script.push_back(DecodeBatch{rows});
    }
    Worker alone({.weights = weights,
                  .heads = heads,
                  .k_type = kv.k_type,
                  .v_type = kv.v_type,
                  .block_size = kv.block_size,
                  .n_threads = 1,
                  .reproducible = true});
    std::vector<StepResult> want;
    for (const StepCommand& command : script) want.push_back(alone.step(command));
    const RingRun got = run_on_ring({.weights = weights, .plan = plan}, script);
    EXPECT_EQ(difference(want, got.results, /*tolerance=*/0), "");
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(got.results[i].kv_bytes_in_use, std::get<StepDone>(want[i]).kv_bytes_in_use);
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
    all.push_back({n_ranks, DType::kF32, /*compensates=*/false, /*in_groups=*/true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReproducibleGroups, testing::Values(1, 2, 3, 5, 8),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Ranks, ReproducibleRing, testing::ValuesIn(cases()),
                         [](const auto& tested) {
                           return std::to_string(tested.param.n_ranks) + "_" +
                                  std::string(name_of(tested.param.weights)) +
                                  (tested.param.compensates ? "_razor" : "") +
                                  (tested.param.in_groups ? "_groups" : "");
                         });

}  // namespace
}  // namespace longhaul::test
