// Saved caches are found by what is in them: tokens, model, types, roles; what differs is named.
#include "tools/job/saved_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using test::done;
using test::message_of;
using testing::HasSubstr;

class SavedDocumentsTest : public testing::Test {
 protected:
  static std::string identity(int recent = 20) {
    return R"({"model":{"config":"a"},"cache_type_k":"f32","cache_type_v":"f32","heads":{"recent":)" +
           std::to_string(recent) + "}}";
  }
  // Saves the first n of the tokens under this name.
  void save(const std::string& name, std::int64_t n, KvType type = KvType::kF32, int recent = 20) {
    HeadRoles roles = HeadRoles::all_retrieval(3, 3);
    roles.sink = 4;
    roles.recent = 20;
    if (streaming_head_) roles.roles[1] = HeadRole::kStreaming;
    ModelSpec spec = test::tiny_spec();
    if (quantises_groups(type)) spec.head_dim = 32;
    Worker worker({.weights = test::tiny_weights(spec),
                   .heads = duo_attention_heads(spec, roles),
                   .k_type = type,
                   .v_type = type,
                   .block_size = quantises_groups(type) ? 32 : 16,
                   .n_threads = 1});
    const Ids tokens(all_tokens_.begin(), all_tokens_.begin() + n);
    done(worker.step(OpenSequence{{1}, {}}));
    test::prefill(worker, {1}, tokens, 40);
    done(worker.step(
        SaveSequence{{1},
                     folder_.path().string(),
                     name,
                     tokens,
                     {{"content_id", "id of " + name}, {"settings", identity(recent)}}}));
  }
  WantedCaches wanted() const {
    return {.identity = identity(), .rope_theta = test::tiny_spec().rope_theta};
  }
  std::vector<SavedStart> find(const WantedCaches& wanted, bool must_work = true) const {
    return SavedDocuments({{.path = folder_.path(), .must_work = must_work}}, wanted)
        .starts_of(tokens_);
  }

  test::Random random_{test::base_seed()};
  const Ids all_tokens_ = test::random_tokens(random_, 100, 97);
  Ids tokens_ = all_tokens_;  // of the document that is looked for
  test::TemporaryFolder folder_;
  bool streaming_head_ = false;  // of what is saved
};

TEST_F(SavedDocumentsTest, TheLongestBeginningComesFirstWhateverItIsCalled) {
  save("some", 50);
  save("all", 100);
  save("few", 10);
  const std::vector<SavedStart> starts = find(wanted());
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(starts[0].name, "all");
  EXPECT_EQ(starts[0].content_id, "id of all");
  EXPECT_EQ(starts[1].n_tokens, 50);
  EXPECT_EQ(starts[2].n_tokens, 10);
  EXPECT_FALSE(starts[0].converts);
}

// A document that methods cut when it was whole, and one that was still being read.
TEST_F(SavedDocumentsTest, WhatMethodsCutIsOfThatDocumentAlone) {
  Worker worker({.weights = test::tiny_weights(),
                 .heads = HeadTable(
                     3, 3, {.keep = KeepBudget{.n_tokens = 10, .when = KeepWhen::kAfterDocument}}),
                 .block_size = 16,
                 .n_threads = 1});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return Ids(all_tokens_.begin() + begin, all_tokens_.begin() + end);
  };
  const auto save_as = [&](const std::string& name, std::int64_t n) {
    done(worker.step(SaveSequence{{1},
                                  folder_.path().string(),
                                  name,
                                  part(0, n),
                                  {{"content_id", "id of " + name}, {"settings", identity()}}}));
  };
  done(worker.step(OpenSequence{{1}, {}}));
  done(worker.step(PrefillChunk{.sequence = {1}, .tokens = part(0, 50)}));
  save_as("half", 50);
  done(worker.step(
      PrefillChunk{.sequence = {1}, .tokens = part(50, 90), .after = AfterPrefill::kDocumentEnd}));
  save_as("whole", 90);
  WantedCaches cuts = wanted();
  cuts.cuts_documents = true;
  const auto names_for = [&](std::int64_t n) {
    tokens_ = part(0, n);
    std::string names;
    for (const SavedStart& start : find(cuts)) names += start.name + " ";
    return names;
  };
  EXPECT_EQ(names_for(90), "whole half ");
  EXPECT_EQ(names_for(100), "half ") << "a longer one chooses anew";
  EXPECT_EQ(names_for(60), "half ");
  EXPECT_EQ(names_for(50), "") << "nothing was chosen of it";
}

TEST_F(SavedDocumentsTest, OtherTextsAreNone) {
  save("all", 100);
  tokens_[99] = (tokens_[99] + 1) % 97;
  EXPECT_TRUE(find(wanted()).empty());
}

TEST_F(SavedDocumentsTest, ALongerTextServesItsBeginningWhereEveryHeadKeepsEveryToken) {
  save("all", 100);
  tokens_.resize(70);
  const std::vector<SavedStart> starts = find(wanted());
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].n_tokens, 69) << "the last one's hidden row is computed";
  save("same", 70);
  EXPECT_EQ(find(wanted()).at(0).name, "same");
  streaming_head_ = true;
  save("windows", 100);
  fs::remove(folder_.path() / "all.h5");
  fs::remove(folder_.path() / "same.h5");
  EXPECT_TRUE(find(wanted()).empty()) << "what its end does not see is gone";
}

TEST_F(SavedDocumentsTest, WhatDiffersIsNamedWhereTheUserAskedForIt) {
  save("all", 100, KvType::kF32, 30);
  EXPECT_THAT(
      message_of(ErrorCode::kFailedPrecondition, [&] { find(wanted()); }),
      testing::AllOf(HasSubstr("all.h5 (100 tokens)"), HasSubstr("heads.recent: was 30, now 20")));
  EXPECT_TRUE(find(wanted(), /*must_work=*/false).empty());
  WantedCaches other = wanted();
  other.rope_theta = 5e5;
  EXPECT_THAT(message_of(ErrorCode::kFailedPrecondition, [&] { find(other); }),
              HasSubstr("rope_theta: was 10000, now 500000"));
  // One that can be used is enough.
  save("fewer", 60);
  EXPECT_EQ(find(wanted()).at(0).name, "fewer");
}

TEST_F(SavedDocumentsTest, OtherCacheTypesAreConvertedOnlyIfAsked) {
  save("int8", 100, KvType::kInt8);
  EXPECT_THAT(message_of(ErrorCode::kFailedPrecondition, [&] { find(wanted()); }),
              HasSubstr("cache_type_k: was int8, now f32 (--kv-convert converts)"));
  WantedCaches converts = wanted();
  converts.converts = true;
  EXPECT_TRUE(find(converts).at(0).converts);
  save("f32", 100);
  EXPECT_EQ(find(converts).at(0).name, "f32") << "no conversion is better";
}

// Of 100 tokens in blocks of 32 the last 4 lie open.
TEST_F(SavedDocumentsTest, GroupsOfTokensServeWholeBlocksAndAreNeitherCutNorMade) {
  save("kivi", 100, KvType::kKivi4);
  WantedCaches groups = wanted();
  groups.k_type = groups.v_type = KvType::kKivi4;
  groups.block_size = 32;
  const auto n_tokens_for = [&](std::size_t n) {
    tokens_.assign(all_tokens_.begin(), all_tokens_.begin() + static_cast<std::ptrdiff_t>(n));
    const std::vector<SavedStart> starts = find(groups);
    return starts.empty() ? 0 : starts.front().n_tokens;
  };
  EXPECT_EQ(n_tokens_for(100), 100);
  EXPECT_EQ(n_tokens_for(99), 98);
  EXPECT_EQ(n_tokens_for(97), 96);
  EXPECT_EQ(n_tokens_for(96), 64) << "a block is closed as a whole";
  EXPECT_EQ(n_tokens_for(33), 32);
  EXPECT_EQ(n_tokens_for(32), 0);
  tokens_ = all_tokens_;
  groups.block_size = 64;
  EXPECT_THAT(message_of(ErrorCode::kFailedPrecondition, [&] { find(groups); }),
              HasSubstr("block_size: was 32, now 64 (blocks of kivi4 stay whole)"));
  WantedCaches floats = wanted();
  floats.converts = true;
  EXPECT_TRUE(find(floats).at(0).converts);
  fs::remove(folder_.path() / "kivi.h5");
  save("f32", 100);
  groups.block_size = 16;
  groups.converts = true;
  EXPECT_THAT(message_of(ErrorCode::kFailedPrecondition, [&] { find(groups); }),
              HasSubstr("cache_type_k: was f32, now kivi4 (saved rows do not become groups of "
                        "tokens)"));
}

TEST_F(SavedDocumentsTest, AFileThatCannotBeReadIsRefusedOrLeftAlone) {
  save("all", 100);
  std::ofstream(folder_.path() / "bad.h5") << "no HDF5";
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { find(wanted()); }), HasSubstr("bad.h5"));
  EXPECT_EQ(find(wanted(), /*must_work=*/false).size(), 1U);
}

TEST_F(SavedDocumentsTest, AFileThatChangesIsLookedAtAgain) {
  SavedDocuments documents({{.path = folder_.path()}}, wanted());
  save("one", 40);
  EXPECT_EQ(documents.starts_of(tokens_).at(0).n_tokens, 40);
  fs::remove(folder_.path() / "one.h5");
  save("one", 60);
  fs::last_write_time(folder_.path() / "one.h5",
                      fs::file_time_type::clock::now() + std::chrono::seconds(2));
  EXPECT_EQ(documents.starts_of(tokens_).at(0).n_tokens, 60);
}

// It counted as one that holds no caches.
TEST_F(SavedDocumentsTest, AFolderThatCannotBeReadIsAnErrorWhereItMustWork) {
  const fs::path loop = folder_.path() / "loop";
  fs::create_symlink("loop", loop);
  const auto starts = [&](const fs::path& path, bool must_work) {
    return SavedDocuments({{.path = path, .must_work = must_work}}, wanted()).starts_of(tokens_);
  };
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { starts(loop, true); }),
              testing::AllOf(HasSubstr("cannot read the folder " + loop.string()),
                             HasSubstr("Too many levels of symbolic links")));
  EXPECT_TRUE(starts(loop, false).empty());
  EXPECT_TRUE(starts(folder_.path() / "none", true).empty());
}

}  // namespace
}  // namespace longhaul
