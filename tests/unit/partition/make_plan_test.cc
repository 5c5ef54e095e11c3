// The planner's rules on clusters small enough to see through.
#include "partition/make_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "partition/check_plan.h"
#include "partition/cost_model.h"
#include "partition/explain.h"
#include "partition/weight_support.h"
#include "tests/support/paths.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::first_heads;
using test::kGiB;
using test::million_tokens;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

Plan good_plan(const PlanRequest& request) {
  PlanResult result = make_plan(request);
  EXPECT_TRUE(std::holds_alternative<Plan>(result));
  if (!std::holds_alternative<Plan>(result)) return {};
  EXPECT_THAT(check_plan(std::get<Plan>(result), request.spec, request.cluster, request.workload),
              IsEmpty());
  return std::get<Plan>(result);
}

// Blocks of all retrieval heads by rank, at the full document.
IndexedVector<Rank, std::int64_t> retrieval_blocks_by_rank(const Plan& plan,
                                                           const PlanRequest& request) {
  IndexedVector<Rank, std::int64_t> blocks(request.cluster.ranks.size(), 0);
  for (const Stage& stage : plan.replicas[0].stages) {
    for (const LayerId layer : stage.layer_ids()) {
      for (const KvHeadId h : IdRange<KvHeadId>(request.spec.n_kv_heads)) {
        if (!plan.heads.window(layer, h).is_unlimited()) continue;
        const Home& home = stage.home_of(layer, h);
        const auto counts = blocks_by_share(home, request.workload.document_blocks());
        for (std::size_t i = 0; i < counts.size(); ++i) {
          blocks[home.shares[i].rank] += counts[i];
        }
      }
    }
  }
  return blocks;
}

TEST(MakePlan, OneRankDoesEverything) {
  const PlanRequest request = million_tokens(equal_cluster(1, 120 * kGiB));
  const Plan plan = good_plan(request);
  ASSERT_EQ(plan.replicas.size(), 1U);
  ASSERT_EQ(plan.replicas[0].stages.size(), 1U);
  const Stage& stage = plan.replicas[0].stages[0];
  EXPECT_EQ(stage.layers, (Extent{0, 32}));
  EXPECT_EQ(stage.ffn_slice, (IndexedVector<RingPos, Extent>{{0, 14336}}));
  EXPECT_EQ(stage.vocab_slice, (IndexedVector<RingPos, Extent>{{0, 128256}}));
}

TEST(MakePlan, EqualRanksGetEqualParts) {
  PlanRequest request = million_tokens(equal_cluster(4, 64 * kGiB, 4));
  request.options.n_replicas = 1;
  const Plan plan = good_plan(request);
  const Stage& stage = plan.replicas[0].stages[0];
  EXPECT_THAT(stage.token_share, Each(Stage::kTokenShareTotal / 4));
  // Four retrieval heads a layer, four ranks: one whole head each.
  EXPECT_THAT(retrieval_blocks_by_rank(plan, request), Each(32 * 16384));
  for (const LayerId layer : IdRange<LayerId>(32)) {
    for (const KvHeadId h : IdRange<KvHeadId>(8))
      EXPECT_EQ(stage.home_of(layer, h).shares.size(), 1U);
  }
  for (const Extent& slice : stage.ffn_slice) EXPECT_EQ(slice.size(), 14336 / 4);
}

TEST(MakePlan, ThreeRanksShareTheFourthHead) {
  PlanRequest request = million_tokens(equal_cluster(3, 80 * kGiB, 4));
  request.options.n_replicas = 1;
  const Plan plan = good_plan(request);
  const auto blocks = retrieval_blocks_by_rank(plan, request);
  for (const std::int64_t b : blocks)
    EXPECT_NEAR(static_cast<double>(b), 32 * 4 * 16384 / 3.0, 1.0);
  int n_split = 0;
  for (const KvHeadId h : IdRange<KvHeadId>(4)) {
    n_split += plan.replicas[0].stages[0].home_of(LayerId{0}, h).shares.size() > 1 ? 1 : 0;
  }
  EXPECT_EQ(n_split, 1);
}

TEST(MakePlan, ReproduciblePlansGiveEveryHeadOneHome) {
  // Four retrieval heads a layer on three ranks: without it one of them is cut.
  PlanRequest request = million_tokens(equal_cluster(3, 400 * kGiB, 3));
  request.options.n_replicas = 1;
  request.workload.reproducible = true;
  const Plan plan = good_plan(request);
  EXPECT_TRUE(plan.reproducible);
  for (const auto& layer : plan.replicas[0].stages[0].home) {
    for (const Home& home : layer) EXPECT_EQ(home.shares.size(), 1U);
  }
  // What fits only when a head is cut is refused.
  request.options.n_stages = 1;
  const auto fits = [&](std::int64_t memory, bool reproducible) {
    request.cluster = equal_cluster(3, memory, 3);
    request.workload.reproducible = reproducible;
    return plan_fits(request);
  };
  std::int64_t memory = 20 * kGiB;
  while (!fits(memory, false)) memory += kGiB / 32;
  EXPECT_FALSE(fits(memory, true));
  EXPECT_TRUE(fits(memory + 2 * kGiB, true));
}

TEST(MakePlan, CachesFollowMemoryAndComputeFollowsSpeed) {
  const auto path = test::source_path("tests/unit/partition/clusters/lopsided.toml");
  PlanRequest request =
      million_tokens(parse_cluster_toml(read_file(path, 1 << 20), "lopsided.toml"));
  request.heads = dense_heads(request.spec);  // 128 GiB: the fast ranks cannot have it
  request.options.n_replicas = 1;
  request.options.n_stages = 1;
  const Plan plan = good_plan(request);
  const Stage& stage = plan.replicas[0].stages[0];
  EXPECT_GT(stage.token_share[RingPos{0}], 5 * stage.token_share[RingPos{2}]);
  const auto blocks = retrieval_blocks_by_rank(plan, request);
  EXPECT_GT(blocks[Rank{2}], 5 * blocks[Rank{0}]);
  EXPECT_GT(blocks[Rank{0}], 0);
  EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), 32LL * 8 * 16384);
  // Who reads many KV bytes gets no columns.
  EXPECT_TRUE(stage.ffn_slice[RingPos{2}].empty());
}

// Two GPUs that compute, and a node with much memory that keeps the caches.
TEST(MakePlan, ACpuNodeIsHomeOfTheCachesOfGpuRanks) {
  PlanRequest request = million_tokens(parse_cluster_toml(R"(
    [[node]]
    name = "fast"
    gpus = 2
    gpu_memory = "24 GiB"
    gflops = 150000.0
    gb_per_s = 900.0
    [[node]]
    name = "rich"
    memory = "1 TiB"
    gflops = 2000.0
    gb_per_s = 300.0
  )",
                                                          "mixed.toml"));
  request.heads = dense_heads(request.spec);  // 128 GiB
  request.options.n_replicas = 1;
  request.options.n_stages = 1;
  const Plan plan = good_plan(request);
  const Stage& stage = plan.replicas[0].stages[0];
  const auto blocks = retrieval_blocks_by_rank(plan, request);
  EXPECT_GT(blocks[Rank{2}], 10 * blocks[Rank{0}]);
  EXPECT_GT(stage.token_share[RingPos{0}], 20 * stage.token_share[RingPos{2}]);
  const std::string text = explain(plan, request.spec, request.cluster, request.workload);
  EXPECT_THAT(text, HasSubstr("GPU 1"));
  EXPECT_THAT(text, HasSubstr("CPU"));
}

TEST(MakePlan, ARankWithoutRoomGetsNoRetrievalBlocks) {
  PlanRequest request = million_tokens(equal_cluster(2, 120 * kGiB, 2));
  request.options.n_replicas = 1;
  // Just enough for the weights and buffers, and nothing else: streaming heads go elsewhere, too.
  const Plan before = good_plan(request);
  const RankBytes fixed =
      memory_of(before, request.spec, request.cluster, request.workload)[Rank{1}];
  request.cluster.headroom = 0;
  request.cluster.ranks[1].memory_bytes =
      fixed.weights + fixed.activations + fixed.ring_buffers + 1000;
  const Plan plan = good_plan(request);
  EXPECT_EQ(retrieval_blocks_by_rank(plan, request)[Rank{1}], 0);
  EXPECT_EQ(memory_of(plan, request.spec, request.cluster, request.workload)[Rank{1}].kv_streaming,
            0);
  EXPECT_GT(plan.replicas[0].stages[0].token_share[RingPos{1}], 0);
}

TEST(MakePlan, StreamingHeadsGoWhereRetrievalHeadsAreNot) {
  PlanRequest request = million_tokens(equal_cluster(2, 120 * kGiB, 2));
  request.heads = first_heads(request.spec, 1);
  request.options.n_replicas = 1;
  Plan plan = good_plan(request);
  // Rank 1 has no room for retrieval heads: all are at rank 0, all others go to rank 1.
  request.cluster.ranks[1].memory_bytes = 18 * kGiB;
  plan = good_plan(request);
  const auto bytes = memory_of(plan, request.spec, request.cluster, request.workload);
  EXPECT_GT(bytes[Rank{0}].kv_retrieval, 3 * bytes[Rank{1}].kv_retrieval);
  EXPECT_GT(bytes[Rank{1}].kv_streaming, 3 * bytes[Rank{0}].kv_streaming);
}

TEST(MakePlan, FewestStagesThatFit) {
  PlanRequest request = million_tokens(equal_cluster(4, 40 * kGiB));
  request.options.n_replicas = 1;
  EXPECT_EQ(good_plan(request).replicas[0].stages.size(), 1U);
  // 15 GiB of weights do not fit 14 GiB; two halves do.
  request.cluster = equal_cluster(16, 14 * kGiB);
  const Plan plan = good_plan(request);
  ASSERT_EQ(plan.replicas[0].stages.size(), 2U);
  EXPECT_EQ(plan.replicas[0].stages[0].layers, (Extent{0, 16}));
  EXPECT_TRUE(plan.replicas[0].stages[0].vocab_slice[RingPos{0}].empty());
  request.options.n_stages = 5;
  EXPECT_EQ(good_plan(request).replicas[0].stages.size(), 5U);
}

TEST(MakePlan, LayersMoveToTheStageWithMemory) {
  PlanRequest request = million_tokens(equal_cluster(2, 80 * kGiB));
  request.cluster.ranks[1].memory_bytes = 9 * kGiB;
  request.workload.document_tokens = 65536;
  const Plan plan = good_plan(request);
  ASSERT_EQ(plan.replicas[0].stages.size(), 2U);
  EXPECT_GT(plan.replicas[0].stages[0].layers.size(), 16);
}

TEST(MakePlan, HostsStayTogetherInStages) {
  PlanRequest request = million_tokens(equal_cluster(8, 14 * kGiB, 4));
  request.workload.document_tokens = 1 << 17;
  request.options.n_replicas = 1;
  const Plan plan = good_plan(request);
  ASSERT_EQ(plan.replicas[0].stages.size(), 2U);
  EXPECT_EQ(plan.replicas[0].stages[1].ring, (IndexedVector<RingPos, Rank>{{4}, {5}, {6}, {7}}));
}

TEST(MakePlan, ShortDocumentsOnManyRanksMakeReplicas) {
  PlanRequest request = million_tokens(equal_cluster(8, 80 * kGiB));
  request.workload.document_tokens = 4096;
  for (RankSpec& rank : request.cluster.ranks) rank.gflops = 1e6;
  request.cluster.link.between_hosts_gb_per_s = 0.01;  // a ring costs more than it brings
  EXPECT_EQ(good_plan(request).replicas.size(), 8U);
  request.workload.document_tokens = 1 << 20;
  request.cluster.link.between_hosts_gb_per_s = 10;
  for (RankSpec& rank : request.cluster.ranks) rank.gflops = 500;
  EXPECT_EQ(good_plan(request).replicas.size(), 1U);
  request.options.n_replicas = 3;
  const Plan plan = good_plan(request);
  ASSERT_EQ(plan.replicas.size(), 3U);
  EXPECT_EQ(plan.replicas[2].stages[0].ring.size() + plan.replicas[1].stages[0].ring.size() +
                plan.replicas[0].stages[0].ring.size(),
            8U);
}

TEST(MakePlan, LayersWithoutRetrievalHeads) {
  PlanRequest request = million_tokens(equal_cluster(3, 80 * kGiB));
  request.options.n_replicas = 1;
  for (std::int64_t h = 0; h < 8; ++h) {
    request.heads.set({3}, {h}, {.see = SeeSinkRecent{128, 256}});
  }
  const Plan plan = good_plan(request);
  const StageCost cost(plan, plan.replicas[0].stages[0], request.spec, request.cluster);
  EXPECT_EQ(cost.history(LayerId{3}, {8192, 16384}).keys_travel_s, 0);
  EXPECT_GT(cost.history(LayerId{2}, {8192, 16384}).keys_travel_s, 0);
}

TEST(MakePlan, TwoWindowsInALayerWerePlannedForRanksThatCannotShareThem) {
  PlanRequest request = million_tokens(equal_cluster(3, 80 * kGiB));
  request.heads.set({3}, {7}, {.see = SeeSinkRecent{0, 8}});
  request.options.n_replicas = 1;
  try {
    make_plan(request);
    ADD_FAILURE() << "was planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("layer 3, KV head 7"));
  }
  request.cluster = equal_cluster(3, 120 * kGiB);
  request.options.n_replicas = 3;
  EXPECT_EQ(good_plan(request).replicas.size(), 3U);
}

TEST(MakePlan, RefusesWithBytesAndChangesThatWork) {
  PlanRequest request = million_tokens(equal_cluster(2, 40 * kGiB));
  request.workload.k_type = request.workload.v_type = KvType::kF32;
  const PlanResult result = make_plan(request);
  ASSERT_TRUE(std::holds_alternative<NotFitting>(result));
  const auto& refusal = std::get<NotFitting>(result);
  ASSERT_EQ(refusal.bytes.size(), 2U);
  EXPECT_GT(refusal.missing_bytes, 0);
  EXPECT_LT(refusal.bytes[Rank{0}].free() + refusal.bytes[Rank{1}].free(), 0);
  EXPECT_THAT(refusal.changes, testing::Contains(HasSubstr("documents of up to")));
  EXPECT_THAT(refusal.changes, testing::Contains(HasSubstr("more ranks like the last one")));
  request.cluster = equal_cluster(4, 36 * kGiB);
  EXPECT_THAT(std::get<NotFitting>(make_plan(request)).changes[0], HasSubstr("bf16"));
}

// Blocks that chosen tokens are gathered in, and bounds of pages, were once forgotten where heads
// are placed: documents a little too long ended as an internal error.
TEST(MakePlan, FitsOrRefusesWhateverTheMethodNeedsBesides) {
  const ModelSpec spec = test::llama3_8b();
  const auto all_heads = [&](const HeadPolicy& policy) {
    return HeadTable(spec.n_layers, spec.n_kv_heads, policy);
  };
  for (const HeadTable& heads :
       {all_heads({.keep = KeepBudget{.n_tokens = 4096}}),
        all_heads({.keep = KeepBudget{.share = 0.5}}), all_heads({.choose = ReadTopPages{}}),
        all_heads({.keep = KeepBudget{.n_tokens = 4096, .observe = ObserveAll{}}})}) {
    for (const std::int64_t n_ranks : {1, 3}) {
      PlanRequest request = million_tokens(equal_cluster(n_ranks, 30 * kGiB));
      request.heads = heads;
      int n_fit = 0;
      int n_refused = 0;
      for (std::int64_t n_tokens = 20'000; n_tokens < 700'000; n_tokens += n_tokens / 30) {
        request.workload.document_tokens = n_tokens;
        const PlanResult result = make_plan(request);
        const auto* plan = std::get_if<Plan>(&result);
        plan == nullptr ? ++n_refused : ++n_fit;
        if (plan == nullptr) continue;
        EXPECT_THAT(check_plan(*plan, spec, request.cluster, request.workload), IsEmpty())
            << n_tokens << " tokens on " << n_ranks << " ranks";
      }
      EXPECT_GT(n_fit, 10);
      EXPECT_GT(n_refused, 5);
    }
  }
}

TEST(MakePlan, NamesWeightsOfFourBitsOnCpusAndGpus) {
  PlanRequest request = million_tokens(equal_cluster(1, 8 * kGiB));
  request.workload.document_tokens = 1024;
  const auto changes = [&] { return std::get<NotFitting>(make_plan(request)).changes; };
  EXPECT_THAT(changes(), testing::Contains(HasSubstr("--weights int4")));
  request.cluster.ranks[0].device = Device::kCuda;
  EXPECT_THAT(changes(), testing::Contains(HasSubstr("--weights int4")));
}

TEST(MakePlan, RefusesInt4WeightsWithOddHeads) {
  PlanRequest request = million_tokens(equal_cluster(2, 40 * kGiB));
  const auto refusal = [&]() -> std::string {
    try {
      make_plan(request);
      return "none";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  };
  request.workload.weight_dtype = DType::kI4;
  EXPECT_EQ(refusal(), "none");
  request.cluster.ranks[1].device = Device::kCuda;
  EXPECT_EQ(refusal(), "none");
  request.spec.n_heads = request.spec.n_kv_heads;
  request.spec.head_dim = 12;
  EXPECT_THAT(
      refusal(),
      HasSubstr("--weights int4: query heads of one KV head have 12 values, no multiple of 8"));
  for (const DType dtype : {DType::kI8, DType::kF8E4m3})
    EXPECT_EQ(why_not_weights(request.spec, dtype), std::nullopt);
}

TEST(MakePlan, RefusesRequestsThatMakeNoSense) {
  PlanRequest request = million_tokens(equal_cluster(2, 40 * kGiB));
  request.options.n_stages = 3;
  EXPECT_THROW(make_plan(request), Error);
  request.options.n_stages.reset();
  request.heads = HeadTable(32, 4);
  EXPECT_THROW(make_plan(request), Error);
  request = million_tokens(equal_cluster(2, 40 * kGiB));
  request.workload.chunk_len = 0;
  EXPECT_THROW(make_plan(request), Error);
}

TEST(MakePlan, IsDeterministic) {
  const PlanRequest request = million_tokens(equal_cluster(5, 64 * kGiB));
  EXPECT_EQ(good_plan(request), good_plan(request));
}

TEST(MakePlan, RanksReadAboutTheSameInDecode) {
  PlanRequest request = million_tokens(equal_cluster(3, 80 * kGiB));
  request.options.n_replicas = 1;
  request.cluster.ranks[2].memory_bytes = 30 * kGiB;
  request.workload.document_tokens = 1 << 17;
  const Plan plan = good_plan(request);
  const auto cost = decode_step(plan, plan.replicas[0], request.spec, request.cluster,
                                request.workload, 1, (1 << 17) + 2048);
  EXPECT_NEAR(cost.bytes_read[Rank{0}] / cost.bytes_read[Rank{2}], 1.0, 0.02);
  EXPECT_NEAR(cost.bytes_read[Rank{0}] / cost.bytes_read[Rank{1}], 1.0, 0.02);
}

}  // namespace
}  // namespace longhaul
