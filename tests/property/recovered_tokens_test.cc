// Heads that keep by the recipe that recovers enough of their attention (FastGen): which tokens
// stay, what is answered, and that neither depends on chunks or forks. One rank; rings are in
// tests/multirank.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/property/recovered_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

TEST(RecoveredTokens, AreThoseOfDoublePrecisionAndSoAreTheAnswers) {
  constexpr double kFarApart = 2e-5;  // rounding to float does not change the choice
  int n_clear = 0;
  for (int round = 0; round < 15 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    constexpr KeepWhen kTimes[] = {KeepWhen::kAfterDocument, KeepWhen::kAfterPrompt,
                                   KeepWhen::kAfterToken};
    const KeepWhen when = kTimes[round % 3];
    const HeadTable heads = heads_with(spec, random_recovery(random, when));
    const auto classes =
        std::make_shared<const TokenClasses>(random_classes(random, spec.vocab_size));
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .seed = seed});
    const ModelFolder model(folder.path());
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = heads,
                   .block_size = 16 * random.integer(1, 3),
                   .token_classes = classes,
                   .n_threads = 1});
    const std::int64_t n = random.integer(1, 90);
    std::vector<std::int32_t> text = random_tokens(random, n, spec.vocab_size);
    for (const StepCommand& command :
         read_document(SequenceId{1}, text, random_chunks(random, n), AfterPrefill::kDocumentEnd)) {
      done(worker.step(command));
    }
    const auto question = random_tokens(random, random.integer(1, 20), spec.vocab_size);
    StepDone answer;
    for (const SequenceId fork : {SequenceId{3}, SequenceId{2}}) {
      done(worker.step(ForkSequence{
          .parent = SequenceId{1}, .child = fork, .sampling = {.n_logprobs = spec.vocab_size}}));
      answer = done(worker.step(
          PrefillChunk{.sequence = fork, .tokens = question, .after = AfterPrefill::kSample}));
    }
    text.insert(text.end(), question.begin(), question.end());
    const auto n_prompt = static_cast<std::int64_t>(text.size());
    std::vector<std::vector<float>> got;
    for (int step = 0; step < 10; ++step) {
      text.push_back(answer.picked.at(0).token);
      answer = done(worker.step(DecodeBatch{.rows = {{SequenceId{2}, text.back()}}}));
      done(worker.step(DecodeBatch{.rows = {{SequenceId{3}, step % 7}}}));
      auto& row = got.emplace_back(static_cast<std::size_t>(spec.vocab_size));
      for (const TokenLogprob& t : answer.picked.at(0).top)
        row[static_cast<std::size_t>(t.token)] = t.logprob;
    }
    const EvictionRun want =
        recover_by_definition(ReferenceModel(model), text,
                              when == KeepWhen::kAfterDocument ? n : n_prompt, heads, *classes);
    if (want.margin < kFarApart) continue;
    ++n_clear;
    const KeptTokens held = held_by(worker, SequenceId{2}, spec);
    for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
      const auto l = static_cast<std::size_t>(layer.value);
      if (!std::holds_alternative<KeepBudget>(heads.at(layer, {0}).keep)) continue;
      EXPECT_EQ(held[l], want.kept[l]) << "layer " << l;
    }
    for (std::size_t step = 0; step < got.size(); ++step) {
      const auto vocab_size = static_cast<std::size_t>(spec.vocab_size);
      const auto row =
          std::span(want.logits)
              .subspan((static_cast<std::size_t>(n_prompt) + step) * vocab_size, vocab_size);
      EXPECT_TRUE(close(got[step], log_softmax(row), logits_tolerance(DType::kF32)));
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(n_clear, 6 * intensity());
}

TEST(RecoveredTokens, DoNotDependOnChunks) {
  Random random(base_seed() + 11);
  const ModelSpec spec = tiny_spec();
  KeepBudget keep = random_recovery(random, KeepWhen::kAfterToken);
  keep.recover = Recover{.threshold = 0.7, .frequent = 0.3, .local = 0.3};
  Worker worker({.weights = tiny_weights(),
                 .heads = heads_with(spec, keep),
                 .block_size = 16,
                 .token_classes =
                     std::make_shared<const TokenClasses>(random_classes(random, spec.vocab_size)),
                 .n_threads = 1});
  const std::int64_t n = 400;
  const auto text = random_tokens(random, n, spec.vocab_size);
  KeptTokens want;
  for (const std::int64_t chunk_len : {n, std::int64_t{300}, std::int64_t{64}, std::int64_t{1}}) {
    for (const StepCommand& command : read_document(
             SequenceId{chunk_len}, text, equal_chunks(n, chunk_len), AfterPrefill::kSample)) {
      done(worker.step(command));
    }
    for (std::int32_t token = 0; token < 20; ++token)
      done(worker.step(DecodeBatch{.rows = {{SequenceId{chunk_len}, token}}}));
    const KeptTokens got = held_by(worker, SequenceId{chunk_len}, spec);
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << "chunks of " << chunk_len;
  }
  EXPECT_LT(want.at(0).at(0).size(), 420U);
}

TEST(RecoveredTokens, NeedTheClassesOfTokens) {
  const HeadTable heads =
      heads_with(tiny_spec(), {.share = 1, .observe = ObserveAll{}, .recover = Recover{}});
  EXPECT_THROW(Worker({.weights = tiny_weights(), .heads = heads, .n_threads = 1}), Error);
}

}  // namespace
}  // namespace longhaul::test
