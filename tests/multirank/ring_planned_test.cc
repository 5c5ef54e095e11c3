// Plans that make_plan makes, run end to end: equal and lopsided clusters, and many ranks. Results
// equal those of one rank; caches lie where the plan says; buffers stay below what it reckoned
// with.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "partition/check_plan.h"
#include "partition/make_plan.h"
#include "partition/memory_model.h"
#include "tests/multirank/ring_cases.h"
#include "tests/property/worker_cases.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

ModelSpec model(std::int64_t n_layers) {
  ModelSpec spec = tiny_spec();
  spec.n_layers = n_layers;
  spec.attention_window.assign(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
  return spec;
}

// One retrieval head in every second layer.
HeadRoles few_retrieval_heads(const ModelSpec& spec) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    for (std::int64_t head = 0; head < spec.n_kv_heads; ++head) {
      if (layer % 2 == 0 && head == 1) continue;
      roles.roles[static_cast<std::size_t>(layer * spec.n_kv_heads + head)] = HeadRole::kStreaming;
    }
  }
  roles.sink = 20;
  roles.recent = 50;
  return roles;
}

PlanRequest request_for(const ClusterSpec& cluster, std::int64_t n_layers) {
  PlanRequest request;
  request.spec = model(n_layers);
  request.heads = duo_attention_heads(request.spec, few_retrieval_heads(request.spec));
  request.cluster = cluster;
  request.workload = {.document_tokens = 600,
                      .tail_tokens = 100,
                      .n_sequences = 4,
                      .chunk_len = 160,
                      .k_type = KvType::kF32,
                      .v_type = KvType::kF32,
                      .block_size = 16};
  request.options.n_replicas = 1;
  return request;
}

Plan planned(const PlanRequest& request) {
  PlanResult result = make_plan(request);
  if (auto* plan = std::get_if<Plan>(&result)) {
    const auto wrong = check_plan(*plan, request.spec, request.cluster, request.workload);
    require(wrong.empty(), wrong.empty() ? "" : wrong.front());
    return std::move(*plan);
  }
  throw Error(ErrorCode::kInvalidArgument, "the test's plan does not fit");
}

// One document of two chunks and a bit, two questions on it, some tokens for each.
RingRun expect_results_of_one_rank(const PlanRequest& request, const Plan& plan) {
  Random random(base_seed());
  const auto weights = tiny_weights(request.spec);
  Worker alone({.weights = weights,
                .heads = request.heads,
                .k_type = plan.kv.k_type,
                .v_type = plan.kv.v_type,
                .block_size = plan.kv.block_size,
                .n_threads = 1});
  std::vector<StepResult> want;
  std::vector<StepCommand> script;
  const auto add = [&](StepCommand command) {
    want.push_back(alone.step(command));
    script.push_back(std::move(command));
    return done(want.back());
  };
  const auto tokens = [&](std::int64_t n) {
    return random_tokens(random, n, request.spec.vocab_size);
  };
  add(OpenSequence{{0}, {}});
  for (const std::int64_t n : {160, 160, 91}) add(PrefillChunk{{0}, tokens(n)});
  std::vector<DecodeBatch::Row> rows;
  for (std::int64_t id : {1, 2}) {
    add(ForkSequence{{0}, {id}, {.n_logprobs = 3}});
    const auto picked = add(PrefillChunk{{id}, tokens(7 * id), AfterPrefill::kSample}).picked;
    rows.push_back({{id}, picked.front().token});
  }
  for (int i = 0; i < 20; ++i) {
    const StepDone answer = add(DecodeBatch{rows});
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r].token = answer.picked[r].token;
  }
  RingRun run = run_on_ring({.weights = weights, .plan = plan, .with_reports = true}, script);
  // Of groups of tokens a few values may be rounded to the other side.
  const DType type = plan.kv.has_open_blocks() ? DType::kBf16 : DType::kF32;
  EXPECT_EQ(difference(want, run.results, logits_tolerance(type).absolute), "");
  return run;
}

void expect_buffers_within_plan(const PlanRequest& request, const Plan& plan, const RingRun& run) {
  const auto bytes = memory_of(plan, request.spec, request.cluster, request.workload);
  for (const RankReport& report : run.reports.back()) {
    const RankBytes& reckoned = bytes[report.rank];
    EXPECT_LE(report.buffer_bytes, reckoned.activations + reckoned.ring_buffers)
        << "rank " << report.rank.value;
    EXPECT_LE(report.kv_retrieval_bytes, reckoned.kv_retrieval) << "rank " << report.rank.value;
    EXPECT_LE(report.kv_streaming_bytes, reckoned.kv_streaming) << "rank " << report.rank.value;
  }
}

class RingPlanned : public testing::TestWithParam<std::int64_t> {};

TEST_P(RingPlanned, EqualRanksInOneToThreeStages) {
  const std::int64_t n_ranks = GetParam();
  for (std::int64_t n_stages = 1; n_stages <= std::min<std::int64_t>(3, n_ranks); ++n_stages) {
    SCOPED_TRACE(n_stages);
    PlanRequest request = request_for(equal_cluster(n_ranks, 64 * kMiB), 4);
    request.options.n_stages = n_stages;
    const Plan plan = planned(request);
    ASSERT_EQ(plan.replicas.front().stages.size(), static_cast<std::size_t>(n_stages));
    expect_buffers_within_plan(request, plan, expect_results_of_one_rank(request, plan));
  }
}

TEST_P(RingPlanned, KeysForWhatHasLeftWindowsInOneAndTwoStages) {
  for (std::int64_t n_stages = 1; n_stages <= std::min<std::int64_t>(2, GetParam()); ++n_stages) {
    SCOPED_TRACE(n_stages);
    PlanRequest request = request_for(equal_cluster(GetParam(), 64 * kMiB), 4);
    request.heads = with_compensation_keys(request.heads);
    request.options.n_stages = n_stages;
    const Plan plan = planned(request);
    expect_buffers_within_plan(request, plan, expect_results_of_one_rank(request, plan));
  }
}

TEST_P(RingPlanned, OneRankWithEightTimesTheMemory) {
  ClusterSpec cluster = equal_cluster(GetParam(), 8 * kMiB);
  cluster.ranks.back().memory_bytes *= 8;
  PlanRequest request = request_for(cluster, 4);
  request.options.n_stages = 1;
  const Plan plan = planned(request);
  expect_buffers_within_plan(request, plan, expect_results_of_one_rank(request, plan));
}

TEST_P(RingPlanned, CachesOfGroupsOfTokens) {
  PlanRequest request = request_for(equal_cluster(GetParam(), 64 * kMiB), 4);
  request.spec.head_dim = kKvGroup;
  request.workload.k_type = KvType::kKivi4;
  request.workload.v_type = KvType::kKivi4;
  request.workload.block_size = kKvGroup;
  request.options.n_stages = std::min<std::int64_t>(2, GetParam());
  const Plan plan = planned(request);
  expect_buffers_within_plan(request, plan, expect_results_of_one_rank(request, plan));
}

TEST_P(RingPlanned, OneRankThreeTimesSlower) {
  ClusterSpec cluster = equal_cluster(GetParam(), 64 * kMiB);
  cluster.speeds_known = true;
  cluster.ranks.front().gflops /= 3;
  cluster.ranks.front().memory_gb_per_s /= 3;
  PlanRequest request = request_for(cluster, 4);
  request.options.n_stages = 1;
  const Plan plan = planned(request);
  if (GetParam() > 1) {
    const Stage& stage = plan.replicas.front().stages.front();
    const RingPos slow = *stage.ring_position(Rank{0});
    const RingPos fast{slow == RingPos{0} ? 1 : 0};
    EXPECT_LT(stage.token_share[slow], stage.token_share[fast]);
  }
  expect_buffers_within_plan(request, plan, expect_results_of_one_rank(request, plan));
}

TEST_P(RingPlanned, ARankWithoutRoomForARetrievalBlockHoldsNone) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank must hold everything";
  PlanRequest request = request_for(equal_cluster(GetParam(), 64 * kMiB), 4);
  request.options.n_stages = 1;
  const Plan roomy = planned(request);
  const auto bytes = memory_of(roomy, request.spec, request.cluster, request.workload);
  // Room for what it computes, and for half a block.
  const RankBytes& last = bytes.back();
  const std::int64_t needed =
      last.weights + last.activations + last.ring_buffers + roomy.kv.block_bytes() / 2;
  request.cluster.ranks.back().memory_bytes =
      static_cast<std::int64_t>(static_cast<double>(needed) / (1 - request.cluster.headroom)) + 64;
  const Plan plan = planned(request);
  const RingRun run = expect_results_of_one_rank(request, plan);
  expect_buffers_within_plan(request, plan, run);
  for (const auto& reports : run.reports) {
    EXPECT_EQ(reports.back().kv_retrieval_bytes, 0);
    EXPECT_EQ(reports.back().kv_streaming_bytes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingPlanned, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

TEST(RingPlannedAtScale, SixtyFourRanks) {
  PlanRequest request = request_for(equal_cluster(64, 64 * kMiB, 4), 4);
  request.options.n_stages = 2;
  const Plan plan = planned(request);
  expect_buffers_within_plan(request, plan, expect_results_of_one_rank(request, plan));
}

// The next blocks are on their way before a rank attends to those that visit.
TEST(RingTrace, TransfersRunUnderCompute) {
  PlanRequest request = request_for(equal_cluster(3, 64 * kMiB), 2);
  request.options.n_stages = 1;
  std::vector<Trace> traces(3);
  Random random(base_seed());
  const std::vector<StepCommand> script{
      OpenSequence{{0}, {}},
      PrefillChunk{{0}, random_tokens(random, 160, request.spec.vocab_size)}};
  run_on_ring({.weights = tiny_weights(request.spec), .plan = planned(request), .traces = &traces},
              script);
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    int n_transfers = 0;
    for (const Trace::Span& transfer : traces[rank].spans()) {
      if (transfer.lane != TraceLane::kTransfer) continue;
      ++n_transfers;
      EXPECT_TRUE(std::any_of(traces[rank].spans().begin(), traces[rank].spans().end(),
                              [&](const Trace::Span& span) {
                                return span.lane == TraceLane::kCompute &&
                                       span.layer == transfer.layer && span.hop == transfer.hop &&
                                       transfer.begin <= span.begin;
                              }))
          << "rank " << rank << ", layer " << transfer.layer.value << ", hop " << transfer.hop;
    }
    EXPECT_EQ(n_transfers, 2);  // one layer with a retrieval head, two hops
    const std::filesystem::path path = testing::TempDir() + "ring_trace.json";
    traces[rank].write(path, {static_cast<std::int64_t>(rank)});
    const Json json = parse_json(read_file(path, std::size_t{1} << 20), path.string());
    EXPECT_EQ(std::get<JsonArray>(json.value()).size(), traces[rank].spans().size() + 4);
  }
}

}  // namespace
}  // namespace longhaul::test
