// Plans on paper: round trip, a stable hash, and what the reader refuses.
#include "partition/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "partition/fnv1a.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::first_heads;
using test::tiny_model;
using testing::HasSubstr;

Plan small_plan() {
  PlanRequest request;
  request.spec = tiny_model();
  request.heads = first_heads(request.spec, 1, 4, 16);
  request.cluster = equal_cluster(3, 1 << 26);
  request.workload.document_tokens = 1000;
  request.workload.tail_tokens = 100;
  request.workload.chunk_len = 256;
  request.workload.block_size = 16;
  request.options.n_replicas = 1;
  request.options.n_stages = 1;
  return std::get<Plan>(make_plan(request));
}

TEST(PlanJson, KeepsThatAPlanIsReproducible) {
  Plan plan = small_plan();
  EXPECT_EQ(to_text(plan_to_json(plan)).find("reproducible"), std::string::npos)
      << "plans without it are as they were";
  for (auto& layer : plan.replicas[0].stages[0].home) {
    for (Home& home : layer) home.shares.resize(1);
  }
  plan.reproducible = true;
  EXPECT_EQ(plan_from_json(plan_to_json(plan), "plan.json"), plan);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    const Json json = parse_json(text, "plan.json");
    plan_from_json(json, "plan.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "no error";
}

TEST(Fnv1a, PublishedValues) {
  EXPECT_EQ(fnv1a_hex(""), "cbf29ce484222325");
  EXPECT_EQ(fnv1a_hex("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(fnv1a_hex("foobar"), "85944171f73967e8");
}

TEST(PlanJson, RoundTrip) {
  const Plan plan = small_plan();
  const std::string text = to_text(plan_to_json(plan));
  const Json json = parse_json(text, "plan.json");
  EXPECT_EQ(plan_from_json(json, "plan.json"), plan);
  EXPECT_THAT(text, HasSubstr("\"hash\":\"" + plan_hash(plan) + "\""));
}

TEST(PlanJson, TheHashSeesEveryField) {
  const Plan plan = small_plan();
  Plan other = plan;
  EXPECT_EQ(plan_hash(other), plan_hash(plan));
  ++other.replicas[0].stages[0].home[1][KvHeadId{0}].shares[0].weight;
  EXPECT_NE(plan_hash(other), plan_hash(plan));
  other = plan;
  other.heads.set({0}, {1}, {.see = SeeSinkRecent{4, 17}});
  EXPECT_NE(plan_hash(other), plan_hash(plan));
}

TEST(PlanJson, RefusesWhatIsNotAPlan) {
  const std::string good = to_text(plan_to_json(small_plan()));
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_THAT(error_of("{}"), HasSubstr("plan.json: format"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(replaced(good, "longhaul-plan", "plan")), HasSubstr("longhaul-plan"));
  EXPECT_THAT(error_of(replaced(good, "\"version\":2", "\"version\":1")),
              HasSubstr("make the plan again"));
  EXPECT_THAT(error_of(replaced(good, "\"chunk_len\":256", "\"chunk_len\":257")),
              HasSubstr("changed after it was written"));
  EXPECT_THAT(error_of(replaced(good, "\"chunk_len\"", "\"chunklen\"")),
              HasSubstr("unknown key \"chunklen\""));
  EXPECT_THAT(error_of(replaced(good, "\"k_type\":\"bf16\"", "\"k_type\":\"q8_0\"")),
              HasSubstr("kv.k_type: \"q8_0\" is none of"));
  EXPECT_THAT(error_of(replaced(good, "\"layers\":[[0,1]", "\"layers\":[[0,2]")),
              HasSubstr("heads.layers[0][1]"));
  EXPECT_THAT(error_of(replaced(good, "\"layers\":[[0,1]", "\"layers\":[[0,1,1]")),
              HasSubstr("as many heads"));
  EXPECT_THAT(error_of(replaced(good, "\"ring\":[0", "\"ring\":[-1")), HasSubstr("ring"));
  EXPECT_THAT(error_of(replaced(good, "\"layers\":[0,4]", "\"layers\":[4,0]")),
              HasSubstr("backwards"));
  EXPECT_THAT(error_of(replaced(good, "\"layers\":[0,4]", "\"layers\":[0]")),
              HasSubstr("two integers"));
}

}  // namespace
}  // namespace longhaul
