#include "tools/kv_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(KvCompare, WhatMethodsGoOnWithWasNoDifference) {
  const SavedLayerState layer{
      .query_positions = {7}, .queries = {1, 2}, .merging = {3, 4, 5}, .n_slots = {6}, .heads = {}};
  EXPECT_EQ(compare_layers(layer, layer), "");
  SavedLayerState without = layer;
  without.merging.clear();
  EXPECT_EQ(compare_layers(layer, without), "other tokens that later ones may merge with");
  without.queries[1] = 0;
  EXPECT_THAT(compare_layers(layer, without), testing::StartsWith("other newest queries; "));

  const SavedHeadState head{.attention = {{3, 0.5}},
                            .local_attention = {},
                            .n_gone = 2,
                            .gone = {{1.0}, {2.0}},
                            .recipe = Recipe{.kind = RecipeKind::kAll}};
  EXPECT_EQ(compare_states(head, head), "");
  EXPECT_EQ(compare_states(head, {}),
            "other sums of attention; other sums of what left the window; another recipe");
}

}  // namespace
}  // namespace longhaul
