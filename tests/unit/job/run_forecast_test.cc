// Predictions beside measured times, and the speeds that fit them.
#include "tools/job/run_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/job/plans.h"

namespace longhaul {
namespace {

using testing::ContainsRegex;

class Forecast : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 64 * 1024;

  explicit Forecast(std::int64_t n_stages = 1) {
    request_ = test::plan_request(test::llama3_8b(), equal_cluster(2, 256 * test::kGiB, 1));
    request_.workload.document_tokens = kTokens;
    request_.options.n_replicas = 1;
    request_.options.n_stages = n_stages;
    job_ = test::job_plan(request_);
  }
  // What a cluster of these speeds would take, chunk by chunk and for ten answers.
  void run(RunForecast& forecast, const ClusterSpec& real) const {
    const Plan& plan = *job_.plan;
    const StageCost cost(plan, plan.replicas[0].stages[0], request_.spec, real);
    for (std::int64_t begin = 0; begin < kTokens; begin += plan.chunk_len) {
      forecast.add({.is_prefill = true,
                    .n_tokens = plan.chunk_len,
                    .history = begin,
                    .seconds = cost.prefill({begin, begin + plan.chunk_len}).total_s()});
    }
    for (std::int64_t i = 0; i < 10; ++i) {
      const std::int64_t length = kTokens + i;
      const auto step =
          decode_step(plan, plan.replicas[0], request_.spec, real, request_.workload, 3, length);
      forecast.add({.n_tokens = 3, .history = length, .seconds = step.seconds});
    }
  }

  PlanRequest request_;
  JobPlan job_;
};

TEST_F(Forecast, IsRightOnTheClusterThatWasPlannedFor) {
  RunForecast forecast(job_, request_.spec, request_.workload);
  EXPECT_EQ(forecast.text(), "");
  run(forecast, request_.cluster);
  EXPECT_NEAR(forecast.prefill().measured_s / forecast.prefill().predicted_s, 1, 1e-6);
  EXPECT_EQ(forecast.prefill().n_tokens, kTokens);
  EXPECT_EQ(forecast.decode().n_tokens, 30);
  EXPECT_THAT(forecast.text(), ContainsRegex("[+-]0%\\); decode"));
}

TEST_F(Forecast, FindsTheSpeedsOfAClusterThatIsSlower) {
  ClusterSpec real = request_.cluster;
  for (RankSpec& rank : real.ranks) {
    rank.gflops = 300;
    rank.attention_gflops = 90;
    rank.memory_gb_per_s = 20;
  }
  RunForecast forecast(job_, request_.spec, request_.workload);
  run(forecast, real);
  EXPECT_GT(forecast.prefill().measured_s, 2 * forecast.prefill().predicted_s);
  const ClusterSpec fitted = forecast.calibrated();
  EXPECT_NEAR(fitted.ranks[1].gflops, 300, 15);
  EXPECT_NEAR(fitted.ranks[1].attention_gflops, 90, 5);
  EXPECT_NEAR(fitted.ranks[1].memory_gb_per_s, 20, 1);
  // And a plan for it predicts a longer document.
  const auto seconds = [&](const ClusterSpec& cluster) {
    return prefill_document(*job_.plan, job_.plan->replicas[0], request_.spec, cluster, 2 * kTokens)
        .seconds;
  };
  EXPECT_NEAR(seconds(fitted) / seconds(real), 1, 0.05);
}

class PipelineForecast : public Forecast {
 protected:
  PipelineForecast() : Forecast(2) {}
};

TEST_F(PipelineForecast, AddsUpToThePredictionForTheDocument) {
  RunForecast forecast(job_, request_.spec, request_.workload);
  const std::int64_t chunk_len = job_.plan->chunk_len;
  for (std::int64_t begin = 0; begin < kTokens; begin += chunk_len)
    forecast.add({.is_prefill = true, .n_tokens = chunk_len, .history = begin, .seconds = 1});
  const double document =
      prefill_document(*job_.plan, job_.plan->replicas[0], request_.spec, request_.cluster, kTokens)
          .seconds;
  EXPECT_NEAR(forecast.prefill().predicted_s, document, 0.01 * document);
}

}  // namespace
}  // namespace longhaul
