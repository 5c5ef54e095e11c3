// The step command SaveSequence: a worker alone, and ranks that must agree.
#include "worker/snapshot/save_sequence.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "cluster/comm/in_process.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/snapshot/dealt_caches.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::done;
using test::message_of;
using testing::HasSubstr;

SaveSequence save_command(const fs::path& folder, std::vector<std::int32_t> tokens) {
  return {.sequence = {1},
          .folder = folder.string(),
          .name = "doc-1",
          .tokens = std::move(tokens),
          .facts = {{"content_id", "1"}}};
}

TEST(SaveSequence, AWorkerSavesWhatItPrefilled) {
  const test::TemporaryFolder folder;
  test::Random random(test::base_seed());
  HeadRoles roles = HeadRoles::all_retrieval(3, 3);
  roles.sink = 4;
  roles.recent = 20;
  roles.roles[1] = roles.roles[5] = HeadRole::kStreaming;
  ModelSpec spec = test::tiny_spec();
  spec.head_dim = 32;
  const auto weights = test::tiny_weights(spec);
  for (const KvType type : kAllKvTypes) {
    Worker worker({.weights = weights,
                   .heads = duo_attention_heads(spec, roles),
                   .k_type = type,
                   .block_size = 32,
                   .n_threads = 1});
    const auto tokens = test::random_tokens(random, 150, 97);
    done(worker.step(OpenSequence{{1}, {}}));
    test::prefill(worker, {1}, tokens, 40);
    const fs::path to = folder.path() / "deeper" / std::string(name_of(type));
    done(worker.step(save_command(to, tokens)));
    if (test::has_h5py()) {
      EXPECT_EQ(test::run_check({"whole", (to / "doc-1.h5").string()}), "");
    }
    const auto written = fs::last_write_time(to / "doc-1.part-0000.h5");
    done(worker.step(save_command(to, tokens)));
    EXPECT_EQ(fs::last_write_time(to / "doc-1.part-0000.h5"), written) << "it was there already";
    EXPECT_FALSE(fs::exists(to / "doc-1.lock"));

    auto wrong = save_command(to, tokens);
    wrong.tokens.pop_back();
    EXPECT_TRUE(std::holds_alternative<StepFailed>(worker.step(wrong)));
    wrong = save_command(to, tokens);
    wrong.name = "../elsewhere";
    EXPECT_TRUE(std::holds_alternative<StepFailed>(worker.step(wrong)));
    // A failed save costs the sequence nothing.
    done(worker.step(DecodeBatch{.rows = {{.sequence = {1}, .token = 5}}}));
  }
}

TEST(SaveSequence, WhatMethodsGoOnWithIsThereForReaders) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  test::Random random(test::base_seed());
  const KeepBudget h2o{
      .n_tokens = 20, .n_recent = 5, .when = KeepWhen::kAfterToken, .observe = ObserveAll{}};
  const KeepBudget snapkv{.n_tokens = 20, .n_recent = 5, .observe = ObserveLast{5}};
  const KeepBudget fastgen{
      .share = 1, .when = KeepWhen::kAfterToken, .observe = ObserveAll{}, .recover = Recover{}};
  for (const KeepBudget& keep : {h2o, snapkv, fastgen}) {
    const test::TemporaryFolder folder;
    Worker worker({.weights = test::tiny_weights(),
                   .heads = HeadTable(3, 3, {.keep = keep}),
                   .block_size = 16,
                   .token_classes = std::make_shared<const TokenClasses>(97, TokenClass::kOther),
                   .n_threads = 1});
    auto tokens = test::random_tokens(random, 70, 97);
    done(worker.step(OpenSequence{{1}, {}}));
    done(worker.step(
        PrefillChunk{.sequence = {1}, .tokens = tokens, .after = AfterPrefill::kDocumentEnd}));
    done(worker.step(save_command(folder.path(), tokens)));
    const std::string master = (folder.path() / "doc-1.h5").string();
    EXPECT_EQ(test::run_check({"whole", master}), "");
    EXPECT_EQ(test::run_check({"state", master}), "");
    // What is chosen of a prompt is no document's.
    tokens.push_back(1);
    done(worker.step(
        PrefillChunk{.sequence = {1}, .tokens = {1}, .after = AfterPrefill::kPromptEnd}));
    const StepResult refused = worker.step(save_command(folder.path() / "prompt", tokens));
    ASSERT_TRUE(std::holds_alternative<StepFailed>(refused));
    EXPECT_THAT(std::get<StepFailed>(refused).message, HasSubstr("only documents are saved"));
  }
}

TEST(SaveSequence, SumsOfWhatHasLeftWindowsAreThereForReaders) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  test::Random random(test::base_seed());
  const test::TemporaryFolder folder;
  const auto tokens = test::random_tokens(random, 70, 97);
  const HeadPolicy razor{.see = SeeSinkRecent{.sink = 3, .recent = 20},
                         .rest = Rest::kCompensationKey};
  for (const auto& [name, policy] : {std::pair("razor", razor), std::pair("whole", HeadPolicy{})}) {
    Worker worker({.weights = test::tiny_weights(),
                   .heads = HeadTable(3, 3, policy),
                   .block_size = 16,
                   .n_threads = 1});
    done(worker.step(OpenSequence{{1}, {}}));
    test::prefill(worker, {1}, tokens, 30);
    done(worker.step(save_command(folder.path() / name, tokens)));
  }
  const std::string master = (folder.path() / "razor" / "doc-1.h5").string();
  EXPECT_EQ(test::run_check({"whole", master}), "");
  EXPECT_EQ(test::run_check({"gone", master, (folder.path() / "whole" / "doc-1.h5").string()}), "");
}

// Rank 0 of three holds the whole sequence; the others hold nothing but write their (empty) parts.
void save_on_three_ranks(const fs::path& folder, const Weights& weights) {
  const KvBlockShape shape{.block_size = 16, .head_dim = 16};
  const CacheLayout layout(dense_heads(weights.spec()), weights.layers(), shape);
  const SaveSequence command = save_command(folder, std::vector<std::int32_t>(40, 7));
  run_in_process(3, [&](Communicator& comm) {
    BlockPool pool(shape);
    SequenceCache cache(layout, pool);
    for (std::int64_t i = 0; i < 9; ++i) {
      HeadCache& head = cache.head({i / 3}, {i % 3});
      if (comm.rank() == 0) {
        EXPECT_TRUE(head.extend(40));
      } else {
        head.advance_to({40});
      }
    }
    save_sequence({.command = command, .cache = cache, .spec = weights.spec(), .comm = comm});
  });
}

TEST(SaveSequence, RanksWriteTheirPartsAndTheFirstTheMaster) {
  const test::TemporaryFolder folder;
  save_on_three_ranks(folder.path(), *test::tiny_weights());
  for (const char* file : {"doc-1.h5", "doc-1.part-0000.h5", "doc-1.part-0002.h5"})
    EXPECT_TRUE(fs::exists(folder.path() / file)) << file;
  if (test::has_h5py()) {
    EXPECT_EQ(test::run_check({"whole", (folder.path() / "doc-1.h5").string()}), "");
  }
}

TEST(SaveSequence, OneRanksFailureIsEveryRanks) {
  const test::TemporaryFolder folder;
  // Where rank 1 wants to write stands a folder that is not empty.
  const fs::path obstacle = folder.path() / "doc-1.part-0001.h5.partial";
  fs::create_directories(obstacle);
  std::ofstream(obstacle / "file") << "x";
  const std::string message = message_of(
      ErrorCode::kIo, [&] { save_on_three_ranks(folder.path(), *test::tiny_weights()); });
  EXPECT_THAT(message, HasSubstr("doc-1.part-0001.h5.partial"));
  EXPECT_FALSE(fs::exists(folder.path() / "doc-1.h5"));
  EXPECT_FALSE(fs::exists(folder.path() / "doc-1.part-0000.h5"));
}

TEST(SaveSequence, WhatAnotherProcessIsWritingIsLeftToIt) {
  const test::TemporaryFolder folder;
  const AppendFile lock(folder.path() / "doc-1.lock");
  save_on_three_ranks(folder.path(), *test::tiny_weights());
  EXPECT_FALSE(fs::exists(folder.path() / "doc-1.part-0000.h5"));
}

}  // namespace
}  // namespace longhaul
