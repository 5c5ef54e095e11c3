// Models that merge tokens (DMC), whole: against double precision, which slots there are and what
// memory they take; whatever chunks, forks and batches; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "tests/property/chosen_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"
#include "tests/support/reference_model.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

using testing::HasSubstr;

constexpr double kClearDecision = 2e-5;  // nearer ones may be changed by a float's rounding

// Every row but the last.
std::vector<double> log_softmax_before_last(const std::vector<double>& logits,
                                            std::int64_t vocab_size) {
  return log_softmax(std::span(logits).first(logits.size() - static_cast<std::size_t>(vocab_size)),
                     vocab_size);
}

struct MergingCase {
  // With so many layers, or as many as it happens to have.
  explicit MergingCase(std::uint64_t seed, std::int64_t n_layers = 0) : random(seed) {
    spec = merging_spec(random);
    if (n_layers > 0) {
      spec.n_layers = n_layers;
      spec.attention_window.resize(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
    }
    write_model(folder.path(), {.spec = spec, .seed = seed});
    model.emplace(folder.path());
    weights = std::make_shared<const Weights>(Weights::load(*model));
    block_size = 16 * random.integer(1, 3);
  }
  Worker worker(KvType type = KvType::kF32) const {
    return Worker({.weights = weights,
                   .k_type = type,
                   .v_type = type,
                   .block_size = block_size,
                   .n_threads = 1});
  }
  std::size_t bytes_of(std::span<const std::int64_t> n_slots) const {
    const KvBlockShape shape{.block_size = block_size, .head_dim = spec.head_dim};
    std::size_t n_blocks = 0;
    for (const std::int64_t n : n_slots)
      n_blocks += static_cast<std::size_t>(ceil_div(n, block_size));
    return n_blocks * shape.bytes();
  }

  Random random;
  TemporaryFolder folder;
  ModelSpec spec;
  std::optional<ModelFolder> model;
  std::shared_ptr<const Weights> weights;
  std::int64_t block_size = 16;
};

std::uint64_t case_seed(int round) {
  return base_seed() * 1000 + static_cast<std::uint64_t>(round);
}

std::vector<std::int64_t> slots_held(Worker& worker, SequenceId id, const ModelSpec& spec) {
  std::vector<std::int64_t> n_slots;
  for (const auto& layer : held_by(worker, id, spec)) {
    for (const std::vector<std::int64_t>& slots : layer) {
      n_slots.push_back(static_cast<std::int64_t>(slots.size()));
      std::vector<std::int64_t> all(slots.size());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(slots, all);
    }
  }
  return n_slots;
}

TEST(MergedTokens, AreThoseOfDoublePrecisionInAllChunks) {
  int n_clear = 0;
  double least = 1;  // of slots to tokens
  for (int round = 0; round < 8 * intensity(); ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << case_seed(round));
    MergingCase c(case_seed(round));
    const std::int64_t n = c.random.integer(2, 180);
    const auto tokens = random_tokens(c.random, n, c.spec.vocab_size);
    ReferenceModel::Merged merged;
    const std::vector<double> want =
        log_softmax_before_last(ReferenceModel(*c.model).logits(tokens, merged), c.spec.vocab_size);
    if (merged.margin < kClearDecision) continue;
    ++n_clear;
    for (const auto& chunks : {equal_chunks(n, n), equal_chunks(n, 1), equal_chunks(n, 64),
                               random_chunks(c.random, n)}) {
      Worker worker = c.worker();
      EXPECT_TRUE(
          close(log_probabilities(worker, tokens, chunks), want, logits_tolerance(DType::kF32)));
      open_with(worker, SequenceId{1}, tokens, chunks);
      EXPECT_EQ(slots_held(worker, SequenceId{1}, c.spec), merged.n_slots);
      EXPECT_EQ(worker.kv_bytes_in_use(), c.bytes_of(merged.n_slots));
    }
    const auto most = *std::max_element(merged.n_slots.begin(), merged.n_slots.end());
    least = std::min(least, static_cast<double>(most) / static_cast<double>(n));
    if (HasFailure()) return;
  }
  EXPECT_GE(n_clear, 4 * intensity());
  EXPECT_LT(least, 0.6);
}

// Answers of forks in a batch: of the reference, and the same as alone.
TEST(MergedTokens, OfForksInBatchesAreThoseOfWholeTexts) {
  int n_clear = 0;
  for (int round = 0; round < 5 * intensity(); ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << case_seed(round));
    MergingCase c(case_seed(round));
    auto document = random_tokens(c.random, c.random.integer(1, 120), c.spec.vocab_size);
    Worker worker = c.worker();
    open_with(worker, SequenceId{1}, document,
              random_chunks(c.random, static_cast<std::int64_t>(document.size())));
    std::vector<std::vector<std::int32_t>> texts;
    std::vector<DecodeBatch::Row> rows;
    for (const std::int64_t i : {2, 3, 4}) {
      const auto question = random_tokens(c.random, c.random.integer(1, 40), c.spec.vocab_size);
      done(worker.step(
          ForkSequence{.parent = SequenceId{1}, .child = SequenceId{i}, .sampling = {}}));
      const StepDone read = done(worker.step(PrefillChunk{
          .sequence = SequenceId{i}, .tokens = question, .after = AfterPrefill::kSample}));
      auto& text = texts.emplace_back(document);
      text.insert(text.end(), question.begin(), question.end());
      rows.push_back({SequenceId{i}, read.picked.at(0).token});
      // The document goes on, and its forks do not see it.
      const auto more = random_tokens(c.random, c.random.integer(1, 40), c.spec.vocab_size);
      done(worker.step(PrefillChunk{.sequence = SequenceId{1}, .tokens = more}));
      document.insert(document.end(), more.begin(), more.end());
    }
    const std::vector<std::vector<std::int32_t>> prompts = texts;
    for (int step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < rows.size(); ++i) texts[i].push_back(rows[i].token);
      const StepDone answer = done(worker.step(DecodeBatch{rows}));
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i].token = answer.picked.at(i).token;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ReferenceModel::Merged merged;
      const std::vector<double> logits = ReferenceModel(*c.model).logits(texts[i], merged);
      if (merged.margin < kClearDecision) continue;
      ++n_clear;
      EXPECT_EQ(slots_held(worker, rows[i].sequence, c.spec), merged.n_slots);
      for (std::size_t t = prompts[i].size(); t < texts[i].size(); ++t) {
        const std::span<const double> row =
            std::span(logits).subspan((t - 1) * static_cast<std::size_t>(c.spec.vocab_size),
                                      static_cast<std::size_t>(c.spec.vocab_size));
        EXPECT_GE(row[static_cast<std::size_t>(texts[i][t])],
                  *std::max_element(row.begin(), row.end()) - 1e-3);
      }
      Worker alone = c.worker();
      const auto n = static_cast<std::int64_t>(prompts[i].size());
      const auto answer =
          decode(alone, SequenceId{1}, open_with(alone, SequenceId{1}, prompts[i], {&n, 1}), 19);
      EXPECT_EQ(answer, std::vector(texts[i].begin() + n, texts[i].end()));
    }
    if (HasFailure()) return;
  }
  EXPECT_GE(n_clear, 5 * intensity());
}

// Of one layer, since rounded caches move the keys of later ones, and so what merges there.
TEST(MergedTokens, InCachesOf16And8BitsAreWithinTheTable) {
  for (const KvType type : {KvType::kBf16, KvType::kInt8}) {
    int n_clear = 0;
    for (int round = 0; round < 4 * intensity(); ++round) {
      SCOPED_TRACE(testing::Message() << "seed " << case_seed(round));
      MergingCase c(case_seed(round), /*n_layers=*/1);
      const auto tokens = random_tokens(c.random, 100, c.spec.vocab_size);
      ReferenceModel::Merged merged;
      const std::vector<double> want = log_softmax_before_last(
          ReferenceModel(*c.model).logits(tokens, merged), c.spec.vocab_size);
      if (merged.margin < kClearDecision) continue;
      ++n_clear;
      for (const std::int64_t chunk_len : {1, 100}) {
        Worker worker = c.worker(type);
        EXPECT_TRUE(close(log_probabilities(worker, tokens, equal_chunks(100, chunk_len)), want,
                          logits_tolerance(DType::kBf16)));
      }
    }
    EXPECT_GE(n_clear, 1);
  }
}

template <typename Call>
std::string what_is_refused(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MergedTokens, WhatDoesNotGoWithThemIsRefusedByName) {
  MergingCase c(case_seed(0));
  const HeadTable merging = dense_heads(c.spec);
  const HeadTable dense(c.spec.n_layers, c.spec.n_kv_heads);
  EXPECT_TRUE(merging.merges_tokens());
  EXPECT_THAT(what_is_refused([&] { Worker({.weights = c.weights, .heads = dense}); }),
              HasSubstr("merges tokens (DMC)"));
  ModelSpec plain = c.spec;
  plain.token_merging.reset();
  EXPECT_THAT(what_is_refused([&] { Worker({.weights = tiny_weights(plain), .heads = merging}); }),
              HasSubstr("dmc_window_size"));
  EXPECT_THAT(what_is_refused([&] { Worker({.weights = c.weights, .reproducible = true}); }),
              HasSubstr("--reproducible"));
  Worker worker = c.worker();
  const auto n = std::int64_t{5};
  open_with(worker, SequenceId{1}, std::vector<std::int32_t>{1, 2, 3, 4, 5}, {&n, 1});
  EXPECT_THAT(what_is_refused([&] {
                done(worker.step(DecodeBatch{
                    .rows = {{.sequence = SequenceId{1}, .token = 1, .guesses = {2}}}}));
              }),
              HasSubstr("merge"));
}

}  // namespace
}  // namespace longhaul::test
