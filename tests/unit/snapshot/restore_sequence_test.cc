// The step command RestoreSequence: what is refused by name, and bad files, which are found before
// any of them is used.
#include "worker/snapshot/restore_sequence.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/snapshot/dealt_caches.h"
#include "tests/unit/snapshot/flip_bit.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::done;
using testing::HasSubstr;

// 77 tokens, too, are whole chunks: bits are those of the same chunks.
constexpr std::int64_t kChunk = 11;

class RestoreFromFiles : public testing::Test {
 protected:
  RestoreFromFiles() {
    Worker writer = worker();
    done(writer.step(OpenSequence{{1}, {}}));
    test::prefill(writer, {1}, tokens_, kChunk);
    done(writer.step(
        SaveSequence{{1}, folder_.path().string(), "doc", tokens_, {{"content_id", "abc"}}}));
  }
  Worker worker(KvType type = KvType::kF32, const ModelSpec& spec = test::tiny_spec()) const {
    return Worker({.weights = test::tiny_weights(spec),
                   .k_type = type,
                   .v_type = type,
                   .block_size = 16,
                   .n_threads = 1});
  }
  RestoreSequence command() const {
    return {.sequence = {9},
            .folder = folder_.path().string(),
            .name = "doc",
            .content_id = "abc",
            .n_tokens = static_cast<std::int64_t>(tokens_.size())};
  }
  // The failure's message; nothing was made.
  static StepFailed refusal(Worker& worker, const RestoreSequence& command) {
    const StepResult result = worker.step(command);
    if (!std::holds_alternative<StepFailed>(result)) {
      ADD_FAILURE() << "it was restored";
      return {};
    }
    EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
    EXPECT_TRUE(std::holds_alternative<StepFailed>(worker.step(DropSequences{{command.sequence}})))
        << "there is a sequence";
    return std::get<StepFailed>(result);
  }
  fs::path master() const { return folder_.path() / "doc.h5"; }
  fs::path part() const { return folder_.path() / "doc.part-0000.h5"; }

  test::Random random_{test::base_seed()};
  std::vector<std::int32_t> tokens_ = test::random_tokens(random_, 150, 97);
  test::TemporaryFolder folder_;
};

TEST_F(RestoreFromFiles, TheNextTokenIsTheSameBits) {
  Worker reader = worker();
  done(reader.step(command()));
  Worker writer = worker();
  done(writer.step(OpenSequence{{9}, {}}));
  test::prefill(writer, {9}, tokens_, kChunk);
  EXPECT_EQ(reader.kv_bytes_in_use(), writer.kv_bytes_in_use());
  const PrefillChunk more{.sequence = {9}, .tokens = {1, 2, 3}, .score_logprobs = 97};
  const StepDone want = done(writer.step(more));
  const StepDone got = done(reader.step(more));
  ASSERT_EQ(got.scored.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(got.scored[i].top.size(), 97U);
    for (std::size_t j = 0; j < 97; ++j)
      EXPECT_EQ(got.scored[i].top[j].logprob, want.scored[i].top[j].logprob);
  }
}

TEST_F(RestoreFromFiles, ABeginningOfADenseDocumentComesFromItsFiles) {
  RestoreSequence shorter = command();
  shorter.n_tokens = 77;
  Worker reader = worker();
  done(reader.step(shorter));
  Worker writer = worker();
  done(writer.step(OpenSequence{{9}, {}}));
  test::prefill(writer, {9}, {tokens_.begin(), tokens_.begin() + 77}, kChunk);
  EXPECT_EQ(reader.kv_bytes_in_use(), writer.kv_bytes_in_use());
  // The next token's score comes from the hidden row before it, which no file has.
  const PrefillChunk scored{.sequence = {9}, .tokens = {1, 2, 3}, .score_logprobs = 97};
  const StepResult refused = reader.step(scored);
  ASSERT_TRUE(std::holds_alternative<StepFailed>(refused));
  EXPECT_THAT(std::get<StepFailed>(refused).message, HasSubstr("hidden row"));
  done(reader.step(DropSequences{{{9}}}));
  done(reader.step(shorter));
  for (Worker* each : {&writer, &reader})
    test::prefill(*each, {9}, std::span(tokens_).subspan(77, 1), kChunk);
  const StepDone want = done(writer.step(scored));
  const StepDone got = done(reader.step(scored));
  ASSERT_EQ(got.scored.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 97; ++j)
      EXPECT_EQ(got.scored[i].top[j].logprob, want.scored[i].top[j].logprob);
  }
}

TEST_F(RestoreFromFiles, WhatDiffersIsNamed) {
  Worker same = worker();
  RestoreSequence other = command();
  other.content_id = "abd";
  EXPECT_THAT(refusal(same, other).message, HasSubstr("content abc (this run: abd)"));
  Worker int8 = worker(KvType::kInt8);
  const StepFailed types = refusal(int8, command());
  EXPECT_EQ(types.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(types.message, HasSubstr("keys of type f32 (this run: int8)"));
  ModelSpec spec = test::tiny_spec();
  spec.rope_theta = 500000;
  Worker rope = worker(KvType::kF32, spec);
  EXPECT_THAT(refusal(rope, command()).message, HasSubstr("rope_theta 10000 (this run: 500000)"));
  other = command();
  other.name = "../doc";
  EXPECT_EQ(refusal(same, other).code, ErrorCode::kInvalidArgument);
}

TEST_F(RestoreFromFiles, EveryFlippedBitIsFoundBeforeUse) {
  Worker reader = worker();
  for (int round = 0; round < 400; ++round) {
    const fs::path& path = round % 2 == 0 ? master() : part();
    const auto at = random_.integer(0, static_cast<std::int64_t>(fs::file_size(path)) - 1);
    const int bit = static_cast<int>(random_.integer(0, 7));
    test::flip_bit(path, at, bit);
    const StepFailed refused = refusal(reader, command());
    EXPECT_EQ(refused.code, ErrorCode::kCorruptData) << "byte " << at << " of " << path;
    EXPECT_THAT(refused.message, HasSubstr(path.filename().string()));
    test::flip_bit(path, at, bit);
  }
  done(reader.step(command()));
}

TEST_F(RestoreFromFiles, CutShortOrLostFilesAreNamed) {
  Worker reader = worker();
  const auto n_bytes = fs::file_size(part());
  fs::resize_file(part(), n_bytes - 1);
  EXPECT_THAT(refusal(reader, command()).message, HasSubstr("bytes in place of"));
  fs::remove(part());
  EXPECT_THAT(refusal(reader, command()).message,
              HasSubstr("doc.part-0000.h5, which doc.h5 is made of, is missing"));
  fs::resize_file(master(), 100);
  EXPECT_THAT(refusal(reader, command()).message, HasSubstr("doc.h5 is damaged"));
  fs::remove(master());
  EXPECT_EQ(refusal(reader, command()).code, ErrorCode::kIo);
}

TEST_F(RestoreFromFiles, OlderFormatVersionsAreReadOrRefusedByNumber) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  Worker reader = worker();
  for (const int version : {1, 4}) {
    ASSERT_EQ(test::run_check({"version", master().string(), std::to_string(version)}), "");
    const StepFailed refused = refusal(reader, command());
    EXPECT_EQ(refused.code, ErrorCode::kUnsupported);
    EXPECT_THAT(refused.message,
                HasSubstr(fmt::format("doc.h5 has format version {}; this program reads versions 2 "
                                      "to 3",
                                      version)));
  }
  ASSERT_EQ(test::run_check({"version", master().string(), "2"}), "");
  done(reader.step(command()));
  Worker writer = worker();
  done(writer.step(OpenSequence{{9}, {}}));
  test::prefill(writer, {9}, tokens_, kChunk);
  const PrefillChunk more{.sequence = {9}, .tokens = {1, 2}, .score_logprobs = 0};
  const StepDone want = done(writer.step(more));
  const StepDone got = done(reader.step(more));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(got.scored[i].logprob, want.scored[i].logprob);
  // Its checksums are of whole parts.
  std::fstream file(part(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(5000);
  file.write("bad", 3);
  file.close();
  done(reader.step(DropSequences{{{9}}}));
  EXPECT_THAT(refusal(reader, command()).message, HasSubstr("its SHA-256 is wrong"));
}

TEST_F(RestoreFromFiles, AFullCacheFailsAndLeavesNothing) {
  Worker small({.weights = test::tiny_weights(),
                .block_size = 16,
                .cache_limit_bytes = 20000,
                .n_threads = 1});
  EXPECT_EQ(refusal(small, command()).code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace longhaul
