#include "tools/job/run_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace longhaul {
namespace {

constexpr double kLeastToJudge_s = 1;  // in less, starts and messages are most of the time

std::string describe(std::string_view what, const ForecastTimes& times) {
  if (times.measured_s <= 0) return "";
  const std::string text = fmt::format("{} {:.3g} s predicted, {:.3g} s measured", what,
                                       times.predicted_s, times.measured_s);
  if (times.measured_s < kLeastToJudge_s) return text;
  return text + fmt::format(" ({:+.0f}%)", 100 * (times.measured_s / times.predicted_s - 1));
}

}  // namespace

RunForecast::RunForecast(const JobPlan& job, const ModelSpec& spec, const Workload& workload)
    : job_(job), spec_(spec), workload_(workload) {
  for (const Replica& replica : job.plan->replicas) {
    Lane& lane = lanes_.emplace_back();
    for (const Stage& stage : replica.stages)
      lane.stages.emplace_back(*job.plan, stage, spec, *job.cluster);
    lane.busy_until_s.assign(replica.stages.size(), 0.0);
  }
}

// From the end of the chunk before to the end of this one: stages work on different chunks at the
// same time.
double RunForecast::prefill_seconds(Lane& lane, Extent tokens, ChunkCost& slowest) const {
  const double before = lane.busy_until_s.back();
  double ready_s = tokens.begin == 0 ? before : 0;  // a text begins when the one before is read
  for (std::size_t s = 0; s < lane.stages.size(); ++s) {
    const ChunkCost cost = lane.stages[s].prefill(tokens);
    if (cost.total_s() > slowest.total_s()) slowest = cost;
    lane.busy_until_s[s] = std::max(lane.busy_until_s[s], ready_s) + cost.total_s();
    ready_s = lane.busy_until_s[s];
  }
  return lane.busy_until_s.back() - before;
}

const DecodeCost& RunForecast::decode_cost(Lane& lane, std::size_t replica,
                                           const StepOfRun& step) const {
  // Times of steps next to each other hardly differ.
  constexpr std::int64_t kAlike = 64;
  if (lane.decode_rows != step.n_tokens || std::abs(lane.decode_tokens - step.history) > kAlike) {
    lane.decode = decode_step(*job_.plan, job_.plan->replicas[replica], spec_, *job_.cluster,
                              workload_, step.n_tokens, step.history);
    lane.decode_rows = step.n_tokens;
    lane.decode_tokens = step.history;
  }
  return lane.decode;
}

void RunForecast::add(const StepOfRun& step) {
  const std::lock_guard lock(mutex_);
  if (step.n_tokens == 0 || step.seconds <= 0) return;
  Lane& lane = lanes_.at(step.lane);
  ForecastTimes& times = step.is_prefill ? prefill_ : decode_;
  times.measured_s += step.seconds;
  times.n_tokens += step.n_tokens;
  if (!step.is_prefill) {
    const DecodeCost& cost = decode_cost(lane, step.lane, step);
    times.predicted_s += cost.seconds;
    const double transfer_s = cost.wire_s - cost.latency_s;
    decode_fit_.add(cost.read_s, cost.latency_s, step.seconds - transfer_s);
    return;
  }
  ChunkCost slowest;
  times.predicted_s += prefill_seconds(lane, {step.history, step.history + step.n_tokens}, slowest);
  prefill_fit_.add(slowest.linear_s, slowest.total_s() - slowest.linear_s, step.seconds);
}

ForecastTimes RunForecast::prefill() const {
  const std::lock_guard lock(mutex_);
  return prefill_;
}

ForecastTimes RunForecast::decode() const {
  const std::lock_guard lock(mutex_);
  return decode_;
}

std::string RunForecast::text() const {
  const std::string reading = describe("prefill", prefill());
  const std::string answering = describe("decode", decode());
  return reading + (reading.empty() || answering.empty() ? "" : "; ") + answering;
}

ClusterSpec RunForecast::calibrated() const {
  const std::lock_guard lock(mutex_);
  ClusterSpec cluster = *job_.cluster;
  const TwoFactors reading = prefill_.measured_s > 0
                                 ? prefill_fit_.fit(prefill_.measured_s / prefill_.predicted_s)
                                 : TwoFactors{};
  const TwoFactors answering = decode_fit_.fit_to_sum();
  for (RankSpec& rank : cluster.ranks) {
    rank.attention_gflops = rank.attention_speed() / reading.b;
    rank.gflops /= reading.a;
    rank.memory_gb_per_s /= answering.a;
  }
  const bool is_one_host =
      std::all_of(cluster.ranks.begin(), cluster.ranks.end(),
                  [&](const RankSpec& rank) { return rank.host == cluster.ranks[0].host; });
  if (is_one_host) {
    cluster.link.within_host_latency_us *= answering.b;
    return cluster;
  }
  cluster.link.between_hosts_latency_us *= answering.b;
  for (HostLink& link : cluster.host_links) link.latency_us *= answering.b;
  return cluster;
}

}  // namespace longhaul
