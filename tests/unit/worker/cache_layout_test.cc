// Masks made from policies, and the order of work of a layer's heads.
#include "worker/kv/cache_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
namespace longhaul {
namespace {

using testing::ElementsAre;

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

HeadTable mixed_heads() { return duo_attention_heads(three_layers(), mixed_roles()); }

auto heads(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return ElementsAre(KvHeadId{a}, KvHeadId{b}, KvHeadId{c}, KvHeadId{d});
}

TEST(CacheLayout, GroupsRetrievalHeadsFirstAndNamesThemAsPublished) {
  const CacheLayout layout(mixed_heads(), {0, 3}, {.block_size = 16, .head_dim = 16});
  EXPECT_THAT(layout.order({0}), heads(1, 3, 0, 2));
  EXPECT_THAT(layout.order({2}), heads(2, 0, 1, 3));
  EXPECT_EQ(layout.mask({0}, {1}), AttentionMask{});
  EXPECT_EQ(layout.mask({0}, {2}), (AttentionMask{.sink = 7, .recent = 33}));
}

TEST(CacheLayout, AWindowOfTheModelOverrulesRoles) {
  const CacheLayout layout(mixed_heads(), {1, 2}, {.block_size = 16, .head_dim = 16});
  for (const KvHeadId head : layout.kv_head_ids()) {
    EXPECT_EQ(layout.mask({1}, head), (AttentionMask{.sink = 0, .recent = 100}));
  }
  EXPECT_THAT(layout.order({1}), heads(0, 1, 2, 3));
}

TEST(CacheLayout, RefusesLayersThatAreNotThereAndHeadsThatCannotBeRun) {
  const KvBlockShape shape{.block_size = 16, .head_dim = 16};
  EXPECT_THROW(CacheLayout(mixed_heads(), {0, 4}, shape), Error);
  HeadTable heads = mixed_heads();
  heads.set({2}, {0}, {.write = Write::kMergeIntoOpenSlot});
  EXPECT_THROW(CacheLayout(heads, {0, 3}, shape), Error);
}

}  // namespace
}  // namespace longhaul
