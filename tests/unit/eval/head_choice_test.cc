// Which heads keep every token, by profile, by rule, and one by one.
#include "tools/eval/head_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

HeadProfile profile() {
  return {.n_layers = 2, .n_kv_heads = 3, .gates = {0, 0.9, 0, 0.1, 0, 1}, .sink = 4, .recent = 60};
}

std::string mask(const HeadChoice& choice) {
  const HeadRoles roles = choose_head_roles(choice, 2, 3);
  std::string text;
  for (const HeadRole role : roles.roles) text += role == HeadRole::kRetrieval ? '1' : '0';
  return text;
}

TEST(HeadChoice, FollowsProfileAndFlags) {
  EXPECT_EQ(mask({}), "111111");
  EXPECT_EQ(mask({.profile = profile()}), "010001");
  EXPECT_EQ(mask({.profile = profile(), .all_dense = true}), "111111");
  EXPECT_EQ(mask({.profile = profile(), .all_streaming = true}), "000000");
  EXPECT_EQ(mask({.profile = profile(), .retrieval_ratio = 0.0}), "000000");
  EXPECT_EQ(mask({.profile = profile(), .streaming_heads = {"1:2", "0:0"}}), "010000");
  EXPECT_EQ(mask({.recent = 8, .streaming_heads = {"1:0"}}), "111011");
  EXPECT_EQ(mask({.sink = 1, .recent = 8, .only_retrieval_head = "0:2"}), "001000");
  const HeadRoles roles = choose_head_roles({.profile = profile(), .recent = 7}, 2, 3);
  EXPECT_EQ(roles.sink, 4);
  EXPECT_EQ(roles.recent, 7);
}

TEST(HeadChoice, RefusesContradictions) {
  EXPECT_THROW(mask({.recent = 1, .all_dense = true, .all_streaming = true}), Error);
  EXPECT_THROW(mask({.recent = 1, .all_dense = true, .only_retrieval_head = "0:0"}), Error);
  EXPECT_THROW(mask({.retrieval_ratio = 0.5}), Error);
  EXPECT_THROW(mask({.all_streaming = true}), Error);         // without a window
  EXPECT_THROW(mask({.streaming_heads = {"0:0"}}), Error);    // without a window
  EXPECT_THROW(mask({.only_retrieval_head = "0:0"}), Error);  // without a window
  EXPECT_THROW(choose_head_roles({.profile = profile()}, 2, 4), Error);
  for (const char* wrong : {"", "1", "2:0", "0:3", "-1:0", "0:0:0", "a:b", "0:", ":0"}) {
    EXPECT_THROW(parse_head(wrong, 2, 3), Error) << wrong;
  }
  EXPECT_EQ(parse_head("1:2", 2, 3), (HeadId{1, 2}));
}

TEST(HeadChoice, TellsTheMask) {
  const Json json = to_json(choose_head_roles({.profile = profile()}, 2, 3));
  EXPECT_EQ(to_text(json),
            R"({"sink":4,"recent":60,"n_retrieval":2,"retrieval_mask":["010","001"]})");
}

}  // namespace
}  // namespace longhaul
