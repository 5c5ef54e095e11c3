// Tables and roles as JSON: what a plan holds reads back equal, everything else is refused.
#include "model/heads/heads_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

HeadTable mixed_table() {
  HeadTable heads(2, 3);
  heads.set({0}, {1}, {.see = SeeSinkRecent{4, 12}});
  heads.set({0}, {2}, {.see = SeeSinkRecent{4, 12, SinkPositions::kInCache}});
  for (const KvHeadId kv_head : IdRange<KvHeadId>(3)) {
    heads.set({1}, kv_head, {.see = SeeModelWindow{100}});
  }
  return heads;
}

std::string refusal_of(std::string_view text) {
  const Json json = parse_json(text, "plan.json");
  try {
    heads_from_json(JsonField(json, "plan.json"));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HeadsJson, ATableReadsBackEqual) {
  const Json json = to_json(mixed_table());
  EXPECT_EQ(to_text(json),
            R"({"policies":[{"see":"all"},{"see":"sink and recent","sink":4,"recent":12,)"
            R"("positions":"absolute"},{"see":"sink and recent","sink":4,"recent":12,)"
            R"("positions":"in the cache"},{"see":"model window","recent":100}],)"
            R"("layers":[[0,1,2],[3,3,3]]})");
  EXPECT_EQ(heads_from_json(JsonField(json, "plan.json")), mixed_table());
}

TEST(HeadsJson, WhatCannotBeRunIsNotWritten) {
  HeadTable heads = mixed_table();
  heads.set({0}, {0}, {.rest = Rest::kCompensationKey});
  EXPECT_THROW(to_json(heads), Error);
}

TEST(HeadsJson, RefusesDamagedTables) {
  EXPECT_EQ(refusal_of(R"({"policies":[{"see":"all"}],"layers":[[0]]})"), "");
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"some"}],"layers":[[0]]})"), HasSubstr("see"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"all"}],"layers":[[1]]})"), HasSubstr("layers"));
  EXPECT_THAT(refusal_of(R"({"policies":[],"layers":[[0]]})"), HasSubstr("layers"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"all"}],"layers":[[0],[0,0]]})"),
              HasSubstr("as many heads"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"all","pages":16}],"layers":[[0]]})"),
              HasSubstr("pages"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"model window","recent":0}],"layers":[[0]]})"),
              HasSubstr("recent"));
  EXPECT_THAT(refusal_of(R"({"policies":[{"see":"sink and recent","sink":1,"recent":2,)"
                         R"("positions":"nowhere"}],"layers":[[0]]})"),
              HasSubstr("positions"));
}

TEST(HeadsJson, RolesAreAMaskForEachLayer) {
  HeadRoles roles = HeadRoles::all_retrieval(2, 3);
  roles.roles[4] = HeadRole::kStreaming;
  roles.sink = 4;
  roles.recent = 12;
  EXPECT_EQ(to_text(to_json(roles)),
            R"({"sink":4,"recent":12,"n_retrieval":5,"retrieval_mask":["111","101"]})");
}

}  // namespace
}  // namespace longhaul
