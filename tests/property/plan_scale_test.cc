// Plans for large clusters, and plans with the published head profiles. Times are printed, never
// asserted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "partition/check_plan.h"
#include "partition/explain.h"
#include "partition/make_plan.h"
#include "partition/plan_json.h"
#include "tests/support/paths.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::kGiB;
using test::million_tokens;

// Prints the seconds of each step; returns what check_plan found.
std::vector<std::string> plan_and_check(const char* name, const PlanRequest& request) {
  Stopwatch watch;
  const PlanResult result = make_plan(request);
  const double made_s = watch.seconds();
  if (!std::holds_alternative<Plan>(result)) return {"refused"};
  const Plan& plan = std::get<Plan>(result);
  watch = {};
  auto found = check_plan(plan, request.spec, request.cluster, request.workload);
  const double checked_s = watch.seconds();
  watch = {};
  const auto n_characters = explain(plan, request.spec, request.cluster, request.workload).size();
  const double explained_s = watch.seconds();
  fmt::print(
      "{}: {} ranks, {} replicas, {} stages: made in {:.3f} s, checked in {:.3f} s, "
      "explained in {:.3f} s ({} characters)\n",
      name, request.cluster.n_ranks(), plan.replicas.size(), plan.replicas[0].stages.size(), made_s,
      checked_s, explained_s, n_characters);
  return found;
}

TEST(PlanScale, SixtyFourRanks) {
  PlanRequest request = million_tokens(equal_cluster(64, 16 * kGiB, 8));
  EXPECT_TRUE(plan_and_check("planner's choice", request).empty());
  request.options.n_replicas = 1;
  EXPECT_TRUE(plan_and_check("one replica", request).empty());
}

TEST(PlanScale, FourThousandRanks) {
  PlanRequest request = million_tokens(equal_cluster(4096, 16 * kGiB, 8));
  EXPECT_TRUE(plan_and_check("planner's choice", request).empty());
  request.options.n_replicas = 1;
  EXPECT_TRUE(plan_and_check("one replica", request).empty());
  request.options.n_stages = 1;
  request.cluster = equal_cluster(4096, 24 * kGiB, 8);
  EXPECT_TRUE(plan_and_check("one ring", request).empty());
  for (std::size_t r = 0; r < request.cluster.ranks.size(); ++r) {
    request.cluster.ranks[r].gflops = 100.0 + static_cast<double>(r * 7919 % 1000);
    request.cluster.ranks[r].memory_bytes += static_cast<std::int64_t>(r * 104729 % 1000) << 20;
  }
  EXPECT_TRUE(plan_and_check("one lopsided ring", request).empty());
}

class PublishedProfile : public testing::TestWithParam<const char*> {};

TEST_P(PublishedProfile, Fits) {
  const std::string folder = std::string("patterns/") + GetParam();
  LONGHAUL_SKIP_UNLESS_SHARED(folder);
  const HeadProfile profile = read_head_profile(test::shared_path(folder));
  PlanRequest request = million_tokens(equal_cluster(5, 80 * kGiB, 2));
  request.spec.n_layers = profile.n_layers;
  request.spec.n_kv_heads = profile.n_kv_heads;
  request.options.profile = profile;
  for (const double ratio : {0.25, 0.5, 0.75}) {
    request.heads = duo_attention_heads(request.spec, choose_roles(profile, ratio));
    // 32 KV heads in 32 layers are 512 GiB of bf16 for a million tokens.
    request.workload.document_tokens = profile.n_kv_heads == 32 ? 1 << 18 : 1 << 20;
    EXPECT_TRUE(plan_and_check(GetParam(), request).empty()) << ratio;
  }
  // What does not fit names a ratio that would.
  request.cluster = equal_cluster(2, 40 * kGiB, 2);
  request.heads = duo_attention_heads(request.spec, choose_roles(profile, 0.75));
  const PlanResult refused = make_plan(request);
  ASSERT_TRUE(std::holds_alternative<NotFitting>(refused));
  std::string all;
  for (const std::string& change : std::get<NotFitting>(refused).changes) all += change + "\n";
  EXPECT_NE(all.find("a retrieval ratio of"), std::string::npos) << all;
}

INSTANTIATE_TEST_SUITE_P(All, PublishedProfile,
                         testing::Values("Llama-2-7B-32K-Instruct",
                                         "Llama-3-8B-Instruct-Gradient-1048k",
                                         "Llama-3-8B-Instruct-Gradient-4194k",
                                         "Meta-Llama-3.1-8B-Instruct", "Mistral-7B-Instruct-v0.2",
                                         "Mistral-7B-Instruct-v0.3"));

}  // namespace
}  // namespace longhaul
