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

// Latencies were left as they were probed, and the speed of memory was to make up for them: after a
// run whose steps had waited most for messages, the next one was predicted too short by a quarter.
class LatentForecast : public Forecast {
 protected:
  // Ten answers with a batch of this size after documents of this length.
  void decode(RunForecast& forecast, const ClusterSpec& real, std::int64_t batch_size,
              std::int64_t length) const {
    for (std::int64_t i = 0; i < 10; ++i) {
      forecast.add({.n_tokens = batch_size,
                    .history = length,
                    .seconds = seconds(real, batch_size, length)});
    }
  }
  double seconds(const ClusterSpec& cluster, std::int64_t batch_size, std::int64_t length) const {
    return decode_step(*job_.plan, job_.plan->replicas[0], request_.spec, cluster,
                       request_.workload, batch_size, length)
        .seconds;
  }
  ClusterSpec slower() const {
    ClusterSpec real = request_.cluster;
    for (RankSpec& rank : real.ranks) rank.memory_gb_per_s = 30;
    real.link.between_hosts_latency_us = 2500;
    return real;
  }
};

TEST_F(LatentForecast, TellsSlowMessagesFromSlowMemory) {
  RunForecast forecast(job_, request_.spec, request_.workload);
  decode(forecast, slower(), 1, kTokens);
  decode(forecast, slower(), 16, kTokens);
  const ClusterSpec fitted = forecast.calibrated();
  EXPECT_NEAR(fitted.ranks[0].memory_gb_per_s, 30, 1);
  EXPECT_NEAR(fitted.link.between_hosts_latency_us, 2500, 50);
  EXPECT_EQ(fitted.link.within_host_latency_us, request_.cluster.link.within_host_latency_us);
  EXPECT_NEAR(seconds(fitted, 4, 4 * kTokens) / seconds(slower(), 4, 4 * kTokens), 1, 0.02);
}

TEST_F(LatentForecast, PredictsStepsThatAreAllAlike) {
  RunForecast forecast(job_, request_.spec, request_.workload);
  decode(forecast, slower(), 3, kTokens);
  const ClusterSpec fitted = forecast.calibrated();
  EXPECT_NEAR(seconds(fitted, 3, kTokens) / seconds(slower(), 3, kTokens), 1, 0.01);
}

TEST_F(LatentForecast, AddsUpToWhatAFewSlowStepsTook) {
  RunForecast forecast(job_, request_.spec, request_.workload);
  decode(forecast, request_.cluster, 3, kTokens);
  const double usual = seconds(request_.cluster, 3, kTokens);
  forecast.add({.n_tokens = 3, .history = kTokens, .seconds = 10 * usual});
  EXPECT_NEAR(11 * seconds(forecast.calibrated(), 3, kTokens) / (20 * usual), 1, 0.01);
}

TEST_F(LatentForecast, LeavesLatenciesOfLinksThatNoAnswerUsed) {
  request_.options.n_replicas = 2;  // of one rank each
  job_ = test::job_plan(request_);
  RunForecast forecast(job_, request_.spec, request_.workload);
  decode(forecast, slower(), 3, kTokens);
  const ClusterSpec fitted = forecast.calibrated();
  EXPECT_NEAR(fitted.ranks[0].memory_gb_per_s, 30, 1);
  EXPECT_EQ(fitted.link, request_.cluster.link);
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
