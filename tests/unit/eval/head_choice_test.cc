// Which heads keep every token, by rule and one by one.
#include "tools/eval/head_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/heads/heads_json.h"

namespace longhaul {
namespace {

// As a profile says them; without a window where `recent` is 0.
HeadRoles of_profile(std::int64_t recent = 60) {
  const HeadProfile profile{
      .n_layers = 2, .n_kv_heads = 3, .gates = {0, 0.9, 0, 0.1, 0, 1}, .sink = 4, .recent = recent};
  return choose_roles(profile, std::nullopt);
}

HeadRoles dense(std::int64_t recent = 0) {
  HeadRoles roles = HeadRoles::all_retrieval(2, 3);
  roles.recent = recent;
  return roles;
}

std::string mask(const HeadRoles& roles) {
  std::string text;
  for (const HeadRole role : roles.roles) text += role == HeadRole::kRetrieval ? '1' : '0';
  return text;
}

TEST(HeadChoice, ChangesWhatAProfileSays) {
  EXPECT_EQ(with_choice(dense(), {}), dense());
  EXPECT_EQ(with_choice(of_profile(), {}), of_profile());
  EXPECT_EQ(mask(of_profile()), "010001");
  EXPECT_EQ(mask(with_choice(of_profile(), {.all_dense = true})), "111111");
  EXPECT_EQ(mask(with_choice(of_profile(), {.all_streaming = true})), "000000");
  EXPECT_EQ(mask(with_choice(of_profile(), {.streaming_heads = {"1:2", "0:0"}})), "010000");
  EXPECT_EQ(mask(with_choice(dense(8), {.streaming_heads = {"1:0"}})), "111011");
  EXPECT_EQ(mask(with_choice(dense(8), {.only_retrieval_head = "0:2"})), "001000");
  const HeadRoles changed = with_choice(of_profile(7), {.all_streaming = true});
  EXPECT_EQ(changed.sink, 4);
  EXPECT_EQ(changed.recent, 7);
}

TEST(HeadChoice, RefusesContradictions) {
  const HeadRoles roles = dense(1);
  EXPECT_THROW(with_choice(roles, {.all_dense = true, .all_streaming = true}), Error);
  EXPECT_THROW(with_choice(roles, {.all_dense = true, .only_retrieval_head = "0:0"}), Error);
  EXPECT_THROW(with_choice(dense(), {.all_streaming = true}), Error);         // without a window
  EXPECT_THROW(with_choice(dense(), {.streaming_heads = {"0:0"}}), Error);    // without a window
  EXPECT_THROW(with_choice(dense(), {.only_retrieval_head = "0:0"}), Error);  // without a window
  EXPECT_THROW(with_choice(of_profile(0), {}), Error);                        // without a window
  for (const char* wrong : {"", "1", "2:0", "0:3", "-1:0", "0:0:0", "a:b", "0:", ":0"}) {
    EXPECT_THROW(parse_head(wrong, 2, 3), Error) << wrong;
  }
  EXPECT_EQ(parse_head("1:2", 2, 3), (HeadId{1, 2}));
}

TEST(HeadChoice, TellsTheMask) {
  EXPECT_EQ(to_text(to_json(of_profile())),
            R"({"sink":4,"recent":60,"n_retrieval":2,"retrieval_mask":["010","001"]})");
}

}  // namespace
}  // namespace longhaul
