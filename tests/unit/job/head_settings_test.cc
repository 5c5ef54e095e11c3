#include "tools/job/head_settings.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/model_folder.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

ModelSpec spec() { return ModelFolder(test::example_path("model")).config().spec; }

TEST(HeadSettings, WithoutAProfileEveryHeadKeepsAll) {
  const ChosenHeads heads = choose_heads({}, spec());
  EXPECT_EQ(heads.roles.n_retrieval(), spec().n_layers * spec().n_kv_heads);
  EXPECT_FALSE(heads.profile);
}

TEST(HeadSettings, WhatIsNotSaidIsTheProfiles) {
  HeadSettings settings;
  settings.profile = test::example_path("profile");
  const ChosenHeads own = choose_heads(settings, spec());
  ASSERT_TRUE(own.profile);
  EXPECT_EQ(own.roles.sink, own.profile->sink);
  settings.sink = 3;
  settings.recent = 77;
  settings.retrieval_ratio = 0.0;
  const ChosenHeads said = choose_heads(settings, spec());
  EXPECT_EQ(said.roles.sink, 3);
  EXPECT_EQ(said.roles.recent, 77);
  EXPECT_EQ(said.roles.n_retrieval(), 0);
}

TEST(HeadSettings, MethodsSayWhatTheHeadsOfTheTableKeep) {
  HeadSettings settings;
  settings.methods.all = StreamingMethod{.sink = 4, .window = 64};
  const ChosenHeads all = choose_heads(settings, spec());
  EXPECT_EQ(all.table.count(HeadKind::kStreaming), spec().n_layers * spec().n_kv_heads);
  settings.profile = test::example_path("profile");
  EXPECT_THROW(choose_heads(settings, spec()), Error);
  settings.methods = {.all = std::nullopt, .full = WindowMethod{.window = 777}};
  const ChosenHeads full = choose_heads(settings, spec());
  EXPECT_EQ(full.table.count(HeadKind::kRetrieval), 0);
  EXPECT_EQ(full.table.windows().size(), 2U);
}

TEST(HeadSettings, RefusesSettingsWithoutAProfile) {
  HeadSettings settings;
  settings.sink = 4;
  EXPECT_THROW(choose_heads(settings, spec()), Error);
  EXPECT_EQ(roles_by_profile(settings, spec()).roles.sink, 4);  // of heads that may stream later
  settings.retrieval_ratio = 0.5;
  EXPECT_THROW(roles_by_profile(settings, spec()), Error);
}

TEST(HeadSettings, RefusesAProfileOfAnotherModel) {
  HeadSettings settings;
  settings.profile = test::example_path("profile");
  ModelSpec other = spec();
  other.n_layers += 1;
  EXPECT_THROW(roles_by_profile(settings, other), Error);
}

}  // namespace
}  // namespace longhaul
