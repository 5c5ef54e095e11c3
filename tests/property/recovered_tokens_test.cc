// Heads that keep by the recipe that recovers enough of their attention (FastGen): which tokens
// stay, what is answered, and that neither depends on chunks or forks. One rank; rings are in
// tests/multirank.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/property/recovered_tokens.h"
#include "tests/property/worker_cases.h"
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
    const AnsweredText got = read_and_answer(worker, random, spec);
    const EvictionRun want = recover_by_definition(
        ReferenceModel(model), got.tokens,
        when == KeepWhen::kAfterDocument ? got.n_document : got.n_prompt, heads, *classes);
    if (want.margin < kFarApart) continue;
    ++n_clear;
    for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
      const auto l = static_cast<std::size_t>(layer.value);
      if (!std::holds_alternative<KeepBudget>(heads.at(layer, {0}).keep)) continue;
      EXPECT_EQ(got.held[l], want.kept[l]) << "layer " << l;
    }
    expect_answers(got, want.logits);
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
