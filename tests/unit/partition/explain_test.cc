// The texts that people read: complete, and no wider than a terminal.
#include "partition/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::kGiB;
using test::million_tokens;
using testing::HasSubstr;

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

std::string explain_request(const PlanRequest& request) {
  const PlanResult result = make_plan(request);
  if (const Plan* plan = std::get_if<Plan>(&result)) {
    return explain(*plan, request.spec, request.cluster, request.workload);
  }
  return explain(std::get<NotFitting>(result), request.cluster);
}

TEST(Explain, APlan) {
  PlanRequest request = million_tokens(equal_cluster(8, 40 * kGiB, 4));
  request.options.n_replicas = 1;
  const std::string text = explain_request(request);
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("8 ranks in all"));
  EXPECT_THAT(text, HasSubstr("128 of 256 KV heads keep everything"));
  EXPECT_THAT(text, HasSubstr("reading 1048576 tokens"));
  EXPECT_THAT(text, HasSubstr("in 128 chunks"));
  EXPECT_THAT(text, HasSubstr("assumed"));
}

TEST(Explain, ManyUnequalRanks) {
  PlanRequest request = million_tokens(equal_cluster(200, 40 * kGiB, 4));
  request.options.n_replicas = 1;
  for (std::size_t r = 0; r < 200; ++r) request.cluster.ranks[r].gflops += static_cast<double>(r);
  const std::string text = explain_request(request);
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("more lines"));
}

TEST(Explain, ARefusal) {
  const std::string text = explain_request(million_tokens(equal_cluster(2, 20 * kGiB, 4)));
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("It does not fit"));
  EXPECT_THAT(text, HasSubstr("20.0G"));
  EXPECT_THAT(text, HasSubstr("documents of up to"));
}

}  // namespace
}  // namespace longhaul
