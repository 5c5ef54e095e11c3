// Predicted times by hand, and how they react.
#include "partition/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "partition/flops.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::first_heads;
using test::kGiB;
using test::llama3_8b;
using test::million_tokens;
using test::plan_of;

TEST(Flops, OfLlama3) {
  const ModelSpec spec = llama3_8b();
  EXPECT_EQ(linear_flops_per_token(spec), 2.0 * 218103808);
  EXPECT_EQ(attention_flops_per_key(spec), 512.0);
}

TEST(Flops, VisibleKeysEqualACount) {
  for (const KeyWindow& kept : {KeyWindow{}, KeyWindow{.sink = 3, .recent = 5}}) {
    for (const Extent tokens : {Extent{0, 4}, {0, 20}, {2, 9}, {7, 30}, {25, 26}}) {
      double all = 0;
      double history = 0;
      for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
        for (std::int64_t j = 0; j <= t; ++j) {
          if (!kept.is_unlimited() && j >= kept.sink && t - j >= kept.recent) continue;
          ++all;
          if (j < tokens.begin) ++history;
        }
      }
      EXPECT_EQ(visible_keys(kept, tokens), all) << tokens.begin << " " << tokens.end;
      EXPECT_EQ(visible_history_keys(kept, tokens), history) << tokens.begin << " " << tokens.end;
    }
  }
}

TEST(CostModel, OneRankNeedsItsFlops) {
  PlanRequest request = million_tokens(equal_cluster(1, 200 * kGiB));
  const Plan plan = plan_of(request);
  const StageCost cost(plan, plan.replicas[0].stages[0], request.spec, request.cluster);
  const ChunkCost chunk = cost.prefill({8192, 16384});
  const double speed = request.cluster.ranks[0].gflops * 1e9;
  EXPECT_DOUBLE_EQ(chunk.linear_s, 32 * 8192.0 * 2 * 218103808 / speed);
  // 4 of 8 heads, 16 query heads, 512 operations for each visible key.
  EXPECT_DOUBLE_EQ(chunk.history_s, 32 * 8192.0 * 8192 * 16 * 512 / speed);
  EXPECT_DOUBLE_EQ(chunk.chunk_s, 32 * (8192.0 * 8193 / 2) * 16 * 512 / speed);
  EXPECT_DOUBLE_EQ(chunk.streaming_s, 32 * 8192.0 * 384 * 16 * 512 / speed);
}

TEST(CostModel, ShortChunksSendQueriesLongChunksSendKeys) {
  PlanRequest request = million_tokens(equal_cluster(4, 80 * kGiB));
  request.cluster.link.between_hosts_gb_per_s = 0.1;  // so that the wire decides
  const Plan plan = plan_of(request);
  const Stage& stage = plan.replicas[0].stages[0];
  const StageCost cost(plan, stage, request.spec, request.cluster);
  const auto mode = [&](Extent tokens) { return cost.history(LayerId{0}, tokens).cheaper(); };
  EXPECT_EQ(mode({1 << 20, (1 << 20) + 512}), HistoryMode::kQueriesTravel);
  EXPECT_EQ(mode({1024, 1024 + 65536}), HistoryMode::kKeysTravel);
}

TEST(CostModel, ASlowHomeMakesKeysTravel) {
  // All blocks at a slow rank with memory: computing there would take longer than sending them.
  PlanRequest request = million_tokens(equal_cluster(2, 200 * kGiB));
  request.cluster.ranks[0].gflops = 20000;
  request.cluster.link.between_hosts_gb_per_s = 100;
  Plan plan = plan_of(request);
  for (auto& layer : plan.replicas[0].stages[0].home) {
    for (Home& home : layer) home.shares = {{Rank{1}, 1}};
  }
  const StageCost cost(plan, plan.replicas[0].stages[0], request.spec, request.cluster);
  EXPECT_EQ(cost.history(LayerId{0}, {500000, 508192}).cheaper(), HistoryMode::kKeysTravel);
}

TEST(CostModel, LaterChunksCostMoreAndDocumentsAddUp) {
  PlanRequest request = million_tokens(equal_cluster(4, 80 * kGiB));
  const Plan plan = plan_of(request);
  const StageCost cost(plan, plan.replicas[0].stages[0], request.spec, request.cluster);
  EXPECT_LT(cost.prefill({0, 8192}).total_s(), cost.prefill({8192, 16384}).total_s());
  const auto document =
      prefill_document(plan, plan.replicas[0], request.spec, request.cluster, 20000);
  EXPECT_EQ(document.n_chunks, 3);
  EXPECT_NEAR(document.seconds,
              cost.prefill({0, 8192}).total_s() + cost.prefill({8192, 16384}).total_s() +
                  cost.prefill({16384, 20000}).total_s(),
              1e-9);
}

TEST(CostModel, StagesOverlap) {
  PlanRequest request = million_tokens(equal_cluster(4, 80 * kGiB));
  request.options.n_stages = 2;
  const Plan plan = plan_of(request);
  const auto document =
      prefill_document(plan, plan.replicas[0], request.spec, request.cluster, 1 << 17);
  const double work = document.stages[0].total_s() + document.stages[1].total_s();
  EXPECT_LT(document.seconds, 0.6 * work);
  EXPECT_GT(document.seconds, 0.5 * work);
}

TEST(CostModel, DecodeReadsWhatLiesOnTheRank) {
  PlanRequest request = million_tokens(equal_cluster(1, 200 * kGiB));
  const Plan plan = plan_of(request);
  const auto one = decode_step(plan, plan.replicas[0], request.spec, request.cluster,
                               request.workload, 1, 1 << 20);
  // All matrices but the embedding, 64 GiB of retrieval heads, 384 tokens of 128 streaming heads.
  const double bytes =
      2.0 * (32 * 218103808.0 + 525336576.0) + 64.0 * static_cast<double>(kGiB) + 128.0 * 384 * 512;
  EXPECT_DOUBLE_EQ(one.bytes_read[Rank{0}], bytes);
  EXPECT_NEAR(one.seconds, bytes / (request.cluster.ranks[0].memory_gb_per_s * 1e9), 1e-9);
  EXPECT_EQ(one.wire_s, 0);
}

// The same request with every head under one policy.
PlanRequest under(const HeadPolicy& policy) {
  PlanRequest request = million_tokens(equal_cluster(1, 400 * kGiB));
  request.heads = HeadTable(request.spec.n_layers, request.spec.n_kv_heads, policy);
  return request;
}

TEST(CostModel, AnswersReadWhatChosenHeadsKeep) {
  const auto bytes_read = [](const HeadPolicy& policy) {
    const PlanRequest request = under(policy);
    const Plan plan = plan_of(request);
    const std::int64_t n_tokens = request.workload.document_tokens + 100;
    return decode_step(plan, plan.replicas[0], request.spec, request.cluster, request.workload, 1,
                       n_tokens)
        .bytes_read[Rank{0}];
  };
  const double document = static_cast<double>(under({}).workload.document_tokens);
  constexpr double kTokenBytes = 32.0 * 8 * 512;  // of all heads
  const double dense = bytes_read({});
  const KeepBudget keep{.n_tokens = 1000, .when = KeepWhen::kAfterDocument};
  EXPECT_DOUBLE_EQ(dense - bytes_read({.keep = keep}), (document - 1000) * kTokenBytes);
  KeepBudget every_token = keep;
  every_token.when = KeepWhen::kAfterToken;
  EXPECT_DOUBLE_EQ(dense - bytes_read({.keep = every_token}), (document - 900) * kTokenBytes);
  // Four query heads may each choose other pages; the bounds of a page are 1 KiB.
  const double paged = bytes_read({.choose = ReadTopPages{.page_tokens = 16, .budget_tokens = 64}});
  EXPECT_DOUBLE_EQ(dense - paged, (document + 100 - 256) * kTokenBytes -
                                      std::ceil((document + 100) / 16) * 32 * 8 * 1024);
}

TEST(CostModel, ScoringKeysCountsWhereHeadsChoose) {
  const auto reading = [](const HeadPolicy& policy) {
    const PlanRequest request = under(policy);
    const Plan plan = plan_of(request);
    return prefill_document(plan, plan.replicas[0], request.spec, request.cluster, 20000);
  };
  const DocumentCost dense = reading({});
  EXPECT_EQ(dense.stages[0].choosing_s, 0);
  const DocumentCost last = reading({.keep = KeepBudget{.observe = ObserveLast{32}}});
  const DocumentCost all = reading({.keep = KeepBudget{.observe = ObserveAll{}}});
  EXPECT_NEAR(last.seconds - dense.seconds, last.stages[0].choosing_s, 1e-9);
  // Half of the products of attention, for 32 queries or for all.
  const ChunkCost& work = dense.stages[0];
  EXPECT_NEAR(all.stages[0].choosing_s, (work.chunk_s + work.history_s) / 2, 1e-6);
  EXPECT_NEAR(last.stages[0].choosing_s,
              all.stages[0].choosing_s * 32 * 20000 / (20000. * 20001 / 2), 1e-6);
}

// 8 heads, whose sums are 256 doubles each: 8,192 tokens that leave are read by slab after slab,
// and once more by each of four ranks; out of the home, between the slabs of different ranks, and
// home.
TEST(CostModel, SumsOfWhatLeavesWindowsGoFromSlabToSlab) {
  PlanRequest request = million_tokens(equal_cluster(4, 80 * kGiB));
  const auto reading = [&](Rest rest, Extent tokens, bool reproducible) {
    request.heads = HeadTable(request.spec.n_layers, request.spec.n_kv_heads,
                              {.see = SeeSinkRecent{4, 1000}, .rest = rest});
    Plan plan = plan_of(request);
    plan.reproducible = reproducible;
    return StageCost(plan, plan.replicas[0].stages[0], request.spec, request.cluster)
        .prefill(tokens)
        .streaming_s;
  };
  const auto of_sums = [&](Extent tokens, bool reproducible) {
    return reading(Rest::kCompensationKey, tokens, reproducible) -
           reading(Rest::kNothing, tokens, reproducible);
  };
  const double read_s = 8192.0 * 8 * 512 / (request.cluster.ranks[0].memory_gb_per_s * 1e9);
  const Wire wire = request.cluster.ring_wire(plan_of(request).replicas[0].stages[0].ring);
  const double hop_s = 8 * 256 * 8 / (wire.gb_per_s * 1e9) + wire.latency_us * 1e-6;
  EXPECT_NEAR(of_sums({8192, 16384}, false), 32 * (1.25 * read_s + 8 * hop_s), 1e-9);
  EXPECT_NEAR(of_sums({8192, 16384}, true), 32 * read_s, 1e-9);
  EXPECT_EQ(of_sums({0, 900}, false), 0);
}

}  // namespace
}  // namespace longhaul
