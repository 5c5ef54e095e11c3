#include "tools/job/job_order.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "partition/make_plan.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

JobPlan some_job() {
  PlanRequest request;
  request.spec = test::tiny_model();
  request.heads = dense_heads(request.spec);
  request.cluster = equal_cluster(3, std::int64_t{1} << 34, 2);
  request.cluster.ranks[1].gflops = 1.0 / 3.0;  // has no short decimal form
  request.cluster.ranks[2].device = Device::kCuda;
  request.cluster.ranks[2].gpu = 3;
  request.cluster.link.between_hosts_gb_per_s = 0.1;
  request.cluster.ranks[0].attention_gflops = 1.0 / 7.0;
  request.cluster.host_links = {{"node-0", "node-1", 1.0 / 3.0, 250}};
  request.workload.document_tokens = 5000;
  return {std::make_shared<const Plan>(std::get<Plan>(make_plan(request))),
          std::make_shared<const ClusterSpec>(request.cluster),
          {{}, {.gpu = 0, .pinned = 7}, {.gpu = (std::int64_t{1} << 40) + 1, .pinned = 0}}};
}

TEST(JobOrder, ArrivesBitForBit) {
  const JobPlan job = some_job();
  const JobPlan arrived = decode_order(encode_order(job));
  EXPECT_EQ(*arrived.plan, *job.plan);
  EXPECT_EQ(*arrived.cluster, *job.cluster);
  EXPECT_EQ(arrived.arenas, job.arenas);
}

TEST(JobOrder, RefusesWhatIsDamaged) {
  std::string text = encode_order(some_job());
  const std::size_t at = text.find("\"token_share\":[");
  ASSERT_NE(at, std::string::npos);
  char& digit = text[at + 15];
  digit = digit == '1' ? '2' : '1';
  EXPECT_THROW(decode_order(text), Error);
  EXPECT_THROW(decode_order("{}"), Error);
  EXPECT_THROW(decode_order("refused"), Error);
}

}  // namespace
}  // namespace longhaul
