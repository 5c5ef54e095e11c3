// Saved caches whose types quantise groups of tokens (KIVI): closed blocks as codes, the newest
// tokens as floats, and what goes on from them is what an undisturbed run computes, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/paths.h"
#include "tests/unit/snapshot/dealt_caches.h"
#include "tests/unit/snapshot/flip_bit.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::done;
using testing::HasSubstr;

constexpr std::int64_t kBlock = 32;

struct Types {
  KvType k;
  KvType v;
};

class RestoreGroups : public testing::TestWithParam<Types> {
 protected:
  RestoreGroups() {
    spec_.head_dim = 32;
    roles_.sink = 4;
    roles_.recent = 50;
    roles_.roles[1] = roles_.roles[5] = HeadRole::kStreaming;
  }
  Worker worker(std::int64_t block_size = kBlock) const {
    return worker_of(GetParam(), block_size);
  }
  Worker worker_of(const Types& types, std::int64_t block_size) const {
    return Worker({.weights = test::tiny_weights(spec_),
                   .heads = duo_attention_heads(spec_, roles_),
                   .k_type = types.k,
                   .v_type = types.v,
                   .block_size = block_size,
                   .n_threads = 1,
                   .reproducible = true});
  }
  std::vector<std::int32_t> first(std::int64_t n) const {
    return {tokens_.begin(), tokens_.begin() + n};
  }
  void read(Worker& worker, std::int64_t n) const {
    done(worker.step(OpenSequence{{9}, {}}));
    test::prefill(worker, {9}, first(n), 11);
  }
  SaveSequence save(std::int64_t n, bool goes_on = false) const {
    return {{9},    folder_.path().string(), "doc", first(n), {{"content_id", std::to_string(n)}},
            goes_on};
  }
  RestoreSequence restore(std::int64_t n_saved, std::int64_t n) const {
    return {.sequence = {9},
            .folder = folder_.path().string(),
            .name = "doc",
            .content_id = std::to_string(n_saved),
            .n_tokens = n};
  }
  // More of the document, over the end of a block, then an answer: every token's log-probability.
  static std::vector<float> what_follows(Worker& worker) {
    std::vector<float> scores;
    const auto add = [&](const StepDone& step) {
      for (const auto& scored : step.scored) scores.push_back(scored.logprob);
    };
    for (std::int32_t i = 0; i < 3; ++i) {
      std::vector<std::int32_t> more(23);
      for (std::size_t j = 0; j < more.size(); ++j)
        more[j] = static_cast<std::int32_t>((31 * j + static_cast<std::size_t>(i)) % 97);
      test::prefill(worker, {9}, std::span(more).first(1), 1);
      add(done(worker.step(
          PrefillChunk{.sequence = {9}, .tokens = std::move(more), .score_logprobs = 0})));
    }
    done(worker.step(DecodeBatch{.rows = {{.sequence = {9}, .token = 5}}}));
    return scores;
  }
  fs::path part() const { return folder_.path() / "doc.part-0000.h5"; }

  ModelSpec spec_ = test::tiny_spec();
  HeadRoles roles_ = HeadRoles::all_retrieval(3, 3);
  test::Random random_{test::base_seed()};
  const std::vector<std::int32_t> tokens_ = test::random_tokens(random_, 200, 97);
  test::TemporaryFolder folder_;
};

// With a partial block behind whole ones, none, and nothing but one.
TEST_P(RestoreGroups, WhatFollowsIsBitForBitWhatItWouldHaveBeen) {
  for (const std::int64_t n : {150, 160, 20, 161}) {
    SCOPED_TRACE(n);
    Worker writer = worker();
    read(writer, n);
    done(writer.step(save(n)));
    if (test::has_h5py()) {
      EXPECT_EQ(test::run_check({"whole", (folder_.path() / "doc.h5").string()}), "");
    }
    Worker reader = worker();
    done(reader.step(restore(n, n)));
    EXPECT_EQ(reader.kv_bytes_in_use(), writer.kv_bytes_in_use());
    const std::vector<float> want = what_follows(writer);
    ASSERT_EQ(want.size(), 69U);
    EXPECT_EQ(what_follows(reader), want);
    fs::remove(folder_.path() / "doc.h5");
  }
}

TEST_P(RestoreGroups, FilesThatGoOnHoldWhatOneSaveHolds) {
  Worker writer = worker();
  read(writer, 70);
  done(writer.step(save(70, /*goes_on=*/true)));
  test::prefill(writer, {9}, std::span(tokens_).subspan(70, 85), 11);  // while it is written
  done(writer.step(FinishSave{}));
  done(writer.step(save(155, /*goes_on=*/true)));
  done(writer.step(FinishSave{}));
  const SavedHeader header = read_saved_header(folder_.path() / "doc.h5");
  EXPECT_EQ(header.parts.size(), 2U);
  if (test::has_h5py()) {
    EXPECT_EQ(test::run_check({"whole", header.master.string()}), "");
  }
  Worker reader = worker();
  done(reader.step(restore(155, 155)));
  EXPECT_EQ(what_follows(reader), what_follows(writer));
}

TEST_P(RestoreGroups, ABeginningComesFromWholeBlocksAndFromTheOpenOne) {
  roles_ = HeadRoles::all_retrieval(3, 3);
  Worker writer = worker();
  read(writer, 150);
  done(writer.step(save(150)));
  for (const std::int64_t n : {64, 128, 140}) {
    SCOPED_TRACE(n);
    Worker reader = worker();
    done(reader.step(restore(150, n)));
    Worker undisturbed = worker();
    read(undisturbed, n);
    EXPECT_EQ(reader.kv_bytes_in_use(), undisturbed.kv_bytes_in_use());
    EXPECT_EQ(what_follows(reader), what_follows(undisturbed));
  }
  // What was quantised with tokens behind it is not what it was before.
  Worker reader = worker();
  const StepResult refused = reader.step(restore(150, 100));
  ASSERT_TRUE(std::holds_alternative<StepFailed>(refused));
  EXPECT_THAT(std::get<StepFailed>(refused).message, HasSubstr("tokens 150 (this run: 100)"));
}

TEST_P(RestoreGroups, BlocksOfAnotherSizeAreRefusedByName) {
  Worker writer = worker();
  read(writer, 150);
  done(writer.step(save(150)));
  Worker reader = worker(64);
  const StepResult refused = reader.step(restore(150, 150));
  ASSERT_TRUE(std::holds_alternative<StepFailed>(refused));
  EXPECT_EQ(std::get<StepFailed>(refused).code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(std::get<StepFailed>(refused).message, HasSubstr("blocks of 32 (this run: 64)"));
}

// Rows of floats have what the codes stand for, and the newest tokens as they were; none become
// groups again.
TEST_P(RestoreGroups, AreConvertedToTypesOfTokensAndNotBack) {
  Worker writer = worker();
  read(writer, 150);
  done(writer.step(save(150)));
  Worker floats = worker_of({KvType::kF32, KvType::kF32}, 16);
  RestoreSequence converts = restore(150, 150);
  converts.converts = true;
  done(floats.step(converts));
  SaveSequence again = save(150);
  again.name = "floats";
  done(floats.step(again));
  const SavedHeader before = read_saved_header(folder_.path() / "doc.h5");
  const SavedHeader after = read_saved_header(folder_.path() / "floats.h5");
  for (std::int64_t i = 0; i < 9; ++i) {
    const SavedRows got = read_saved_head(after, {i / 3}, {i % 3});
    std::map<std::int64_t, SavedRow> want;
    for (const SavedRow& row : read_saved_head(before, {i / 3}, {i % 3}).rows)
      want[row.position] = row;
    EXPECT_EQ(got.rows.size(),
              roles_.roles[static_cast<std::size_t>(i)] == HeadRole::kStreaming ? 4U + 49U : 150U);
    for (const SavedRow& row : got.rows) {
      EXPECT_EQ(row.k, want[row.position].k);
      EXPECT_EQ(row.v, want[row.position].v);
    }
  }
  converts.name = "floats";
  Worker reader = worker();
  const StepResult refused = reader.step(converts);
  ASSERT_TRUE(std::holds_alternative<StepFailed>(refused));
  EXPECT_THAT(std::get<StepFailed>(refused).message, HasSubstr("this run: kivi"));
}

TEST_P(RestoreGroups, EveryFlippedBitIsFoundBeforeUse) {
  Worker writer = worker();
  read(writer, 150);
  done(writer.step(save(150)));
  Worker reader = worker();
  for (int round = 0; round < 150; ++round) {
    const auto at = random_.integer(0, static_cast<std::int64_t>(fs::file_size(part())) - 1);
    test::flip_bit(part(), at, round % 8);
    const StepResult refused = reader.step(restore(150, 150));
    ASSERT_TRUE(std::holds_alternative<StepFailed>(refused)) << "byte " << at;
    EXPECT_EQ(std::get<StepFailed>(refused).code, ErrorCode::kCorruptData);
    test::flip_bit(part(), at, round % 8);
  }
  done(reader.step(restore(150, 150)));
}

INSTANTIATE_TEST_SUITE_P(
    Of, RestoreGroups,
    testing::Values(Types{KvType::kKivi4, KvType::kKivi4}, Types{KvType::kKivi2, KvType::kKivi2},
                    Types{KvType::kKivi4, KvType::kInt8}, Types{KvType::kBf16, KvType::kKivi2}),
    [](const auto& tested) {
      return std::string(name_of(tested.param.k)) + "_" + std::string(name_of(tested.param.v));
    });

}  // namespace
}  // namespace longhaul
