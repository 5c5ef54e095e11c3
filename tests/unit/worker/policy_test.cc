// Policies against the definition of visibility, and the order of work of a layer's heads.
#include "worker/kv/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "worker/kv/cache_layout.h"

namespace longhaul {
namespace {

using testing::ElementsAre;

bool sees(const AttentionMask& mask, std::int64_t query, std::int64_t key) {
  return key <= query && (key < mask.sink || query - key < mask.recent);
}

TEST(KvPolicy, KeepAllHidesNothing) {
  const auto policy = make_kv_policy({});
  EXPECT_EQ(policy->mask(), AttentionMask{});
  EXPECT_TRUE(policy->decide({.n_tokens = 1'000'000}).hidden.empty());
}

TEST(KvPolicy, SinkRecentHidesExactlyWhatNoLaterQuerySees) {
  for (const std::int64_t sink : {0, 1, 3, 5}) {
    for (const std::int64_t recent : {1, 2, 4, 7}) {
      const auto policy =
          make_kv_policy({.kind = KvPolicyKind::kSinkRecent, .sink = sink, .recent = recent});
      const AttentionMask mask = policy->mask();
      for (std::int64_t n = 0; n < 25; ++n) {
        const Extent hidden = policy->decide({.n_tokens = n}).hidden;
        for (std::int64_t key = 0; key < n; ++key) {
          bool is_seen = false;
          for (std::int64_t query = n; query < n + 30; ++query) {
            is_seen = is_seen || sees(mask, query, key);
          }
          EXPECT_EQ(hidden.contains(key), !is_seen)
              << "sink " << sink << " recent " << recent << " n " << n << " key " << key;
        }
      }
    }
  }
}

TEST(KvPolicy, HandlesPositionsPastFourBillion) {
  const auto policy =
      make_kv_policy({.kind = KvPolicyKind::kSinkRecent, .sink = 16, .recent = 128});
  EXPECT_EQ(policy->decide({.n_tokens = 5'000'000'000}).hidden, (Extent{16, 4'999'999'873}));
}

TEST(KvPolicy, RefusesAWindowWithoutTheQueryItself) {
  EXPECT_THROW(make_kv_policy({.kind = KvPolicyKind::kSinkRecent, .sink = 4, .recent = 0}), Error);
  EXPECT_THROW(make_kv_policy({.kind = KvPolicyKind::kSinkRecent, .sink = -1, .recent = 4}), Error);
}

ModelSpec three_layers() {
  ModelSpec spec;
  spec.n_layers = 3;
  spec.n_kv_heads = 4;
  spec.n_heads = 8;
  spec.head_dim = 16;
  spec.attention_window = {ModelSpec::kNoWindow, 100, ModelSpec::kNoWindow};
  return spec;
}

HeadRoles mixed_roles() {
  HeadRoles roles;
  roles.n_layers = 3;
  roles.n_kv_heads = 4;
  const auto r = HeadRole::kRetrieval;
  const auto s = HeadRole::kStreaming;
  roles.roles = {s, r, s, r, s, r, s, r, s, s, r, s};
  roles.sink = 7;
  roles.recent = 33;
  return roles;
}

TEST(CacheLayout, GroupsRetrievalHeadsFirstAndNamesThemAsPublished) {
  const CacheLayout layout(three_layers(), mixed_roles(), {0, 3},
                           {.block_size = 16, .head_dim = 16});
  EXPECT_THAT(layout.order(0), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(layout.order(2), ElementsAre(2, 0, 1, 3));
  EXPECT_EQ(layout.policy(0, 1).mask(), AttentionMask{});
  EXPECT_EQ(layout.policy(0, 2).mask(), (AttentionMask{.sink = 7, .recent = 33}));
}

TEST(CacheLayout, AWindowOfTheModelOverrulesRoles) {
  const CacheLayout layout(three_layers(), mixed_roles(), {1, 2},
                           {.block_size = 16, .head_dim = 16});
  for (std::int64_t head = 0; head < 4; ++head) {
    EXPECT_EQ(layout.policy(1, head).mask(), (AttentionMask{.sink = 0, .recent = 100}));
  }
  EXPECT_THAT(layout.order(1), ElementsAre(0, 1, 2, 3));
}

TEST(CacheLayout, RefusesRolesOfAnotherModel) {
  EXPECT_THROW(CacheLayout(three_layers(), HeadRoles::all_retrieval(3, 8), {0, 3},
                           {.block_size = 16, .head_dim = 16}),
               Error);
}

}  // namespace
}  // namespace longhaul
