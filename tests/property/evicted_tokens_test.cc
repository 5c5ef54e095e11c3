// Methods that drop a token at every step (H2O, TOVA): which stay, what answers see, and which
// bytes are free again. One rank; rings are in tests/multirank.
#include <gtest/gtest.h>

#include "model/heads/kept_blocks.h"
#include "tests/property/chosen_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr double kClearSum = 2e-5;  // scores this far apart are not changed by rounding to float

// Where heads choose, not the model's own windows.
void expect_kept(const HeadTable& heads, const KeptTokens& want, const KeptTokens& got) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (!std::holds_alternative<KeepBudget>(heads.at(layer, kv_head).keep)) continue;
      const auto l = static_cast<std::size_t>(layer.value);
      const auto h = static_cast<std::size_t>(kv_head.value);
      EXPECT_EQ(got[l][h], want[l][h]) << "layer " << layer.value << ", head " << kv_head.value;
    }
  }
}

TEST(EvictedTokens, AreThoseOfDoublePrecisionAndSoAreTheAnswers) {
  int n_clear = 0;
  for (int round = 0; round < 10 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    const HeadTable heads = heads_with(spec, random_eviction(random));
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .seed = seed});
    const ModelFolder model(folder.path());
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = heads,
                   .block_size = 16 * random.integer(1, 3),
                   .n_threads = 1});
    const AnsweredText got = read_and_answer(worker, random, spec);
    const EvictionRun want =
        evict_by_definition(ReferenceModel(model), got.tokens, got.n_prompt, heads);
    if (want.margin < kClearSum) continue;
    ++n_clear;
    expect_kept(heads, want.kept, got.held);
    expect_answers(got, want.logits);
    if (HasFailure()) return;
  }
  EXPECT_GT(n_clear, 2 * intensity());
}

HeadTable h2o_heads(const ModelSpec& spec, std::int64_t n_tokens) {
  return heads_with(spec, {.n_tokens = n_tokens,
                           .n_recent = n_tokens / 2,
                           .when = KeepWhen::kAfterToken,
                           .observe = ObserveAll{}});
}

TEST(EvictedTokens, DoNotDependOnChunks) {
  Random random(base_seed() + 7);
  const ModelSpec spec = tiny_spec();
  Worker worker(
      {.weights = tiny_weights(), .heads = h2o_heads(spec, 40), .block_size = 16, .n_threads = 1});
  const std::int64_t n = 400;
  const auto text = random_tokens(random, n, spec.vocab_size);
  KeptTokens want;
  for (const std::int64_t chunk_len : {n, std::int64_t{300}, std::int64_t{64}, std::int64_t{1}}) {
    for (const StepCommand& command : read_document(
             SequenceId{chunk_len}, text, equal_chunks(n, chunk_len), AfterPrefill::kSample)) {
      done(worker.step(command));
    }
    for (std::int32_t token = 0; token < 30; ++token)
      done(worker.step(DecodeBatch{.rows = {{SequenceId{chunk_len}, token}}}));
    const KeptTokens got = held_by(worker, SequenceId{chunk_len}, spec);
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << "chunks of " << chunk_len;
    EXPECT_EQ(got.at(0).at(0).size(), 40U);
  }
}

TEST(EvictedTokens, HoldTheBytesOfTheirBudgetHoweverLongTheAnswer) {
  Random random(base_seed() + 8);
  const ModelSpec spec = tiny_spec();
  Worker worker(
      {.weights = tiny_weights(), .heads = h2o_heads(spec, 48), .block_size = 16, .n_threads = 1});
  const KvBlockShape shape{.block_size = 16, .head_dim = spec.head_dim};
  const auto bytes_of = [&](std::int64_t n_blocks) {
    return static_cast<std::size_t>(n_blocks * spec.n_layers * spec.n_kv_heads) * shape.bytes();
  };
  const auto text = random_tokens(random, 20, spec.vocab_size);
  for (const StepCommand& command :
       read_document(SequenceId{1}, text, equal_chunks(20, 7), AfterPrefill::kPromptEnd)) {
    done(worker.step(command));
  }
  for (std::int64_t n = 21; n < 120; ++n) {
    done(worker.step(DecodeBatch{.rows = {{SequenceId{1}, 3}}}));
    EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(ceil_div(std::min<std::int64_t>(n, 48), 16)));
  }
  // A fork shares everything until one of the two goes on.
  done(worker.step(ForkSequence{.parent = SequenceId{1}, .child = SequenceId{2}, .sampling = {}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(3));
  const KeptTokens before = held_by(worker, SequenceId{1}, spec);
  for (int step = 0; step < 60; ++step)
    done(worker.step(DecodeBatch{.rows = {{SequenceId{2}, step % 9}}}));
  EXPECT_EQ(held_by(worker, SequenceId{1}, spec), before);
  EXPECT_LE(worker.kv_bytes_in_use(), bytes_of(6));
  done(worker.step(DropSequences{{SequenceId{1}, SequenceId{2}}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
}

}  // namespace
}  // namespace longhaul::test
