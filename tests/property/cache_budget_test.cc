// The coordinator's budget is enough for a worker whose pool has that many bytes and not one more:
// windows of the model and of streaming heads, any chunks, a fork that goes on, with guesses.
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/kv_budget.h"
#include "tests/property/worker_cases.h"
#include "tests/support/random.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

TEST(CacheBudget, IsEnoughForAWorkerWithNoByteMore) {
  for (int round = 0; round < 20 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    ModelSpec spec = random_spec(random);
    const std::shared_ptr<const Weights> weights = tiny_weights(spec, DType::kF32, seed);
    KvBudget budget;
    budget.heads = duo_attention_heads(spec, random_roles(random, spec));
    budget.bytes_per_head_and_token =
        static_cast<std::size_t>(2 * kv_token_bytes(KvType::kF32, spec.head_dim));
    budget.block_size = random.chance(0.5) ? 16 : 32;
    budget.chunk_len = random.integer(1, 90);
    budget.n_guesses = random.chance(0.5) ? 0 : random.integer(1, 60);
    const std::int64_t n_document = random.integer(1, 260);
    const std::int64_t n_own = random.integer(1, 120);
    const std::size_t limit =
        budget.bytes_for({0, n_document}) + budget.bytes_for({n_document, n_document + n_own});
    Worker worker({.weights = weights,
                   .heads = budget.heads,
                   .block_size = budget.block_size,
                   .cache_limit_bytes = limit,
                   .n_threads = 1});
    const SequenceId document{1};
    const SequenceId fork{2};
    const auto read = [&](SequenceId id, std::int64_t n) {
      for (std::int64_t left = n; left > 0;) {
        const std::int64_t here = std::min(left, random.integer(1, budget.chunk_len));
        done(worker.step(
            PrefillChunk{.sequence = id, .tokens = random_tokens(random, here, spec.vocab_size)}));
        left -= here;
      }
    };
    done(worker.step(OpenSequence{.sequence = document, .sampling = {}}));
    read(document, n_document);
    done(worker.step(ForkSequence{.parent = document, .child = fork, .sampling = {}}));
    const std::int64_t n_prompt = random.integer(0, n_own);
    read(fork, n_prompt);
    std::int64_t n_wrong = 0;
    for (std::int64_t i = n_prompt; i < n_own;) {
      const std::int64_t n_guesses = std::min(random.integer(0, budget.n_guesses), n_own - i - 1);
      const StepDone step = done(worker.step(
          DecodeBatch{.rows = {{.sequence = fork,
                                .token = 1,
                                .guesses = random_tokens(random, n_guesses, spec.vocab_size),
                                .n_wrong = n_wrong}}}));
      const auto n_picked = static_cast<std::int64_t>(step.picked.size());
      n_wrong = 1 + n_guesses - n_picked;
      i += n_picked;
    }
    ASSERT_LE(worker.kv_bytes_reserved(), limit);
    if (HasFailure()) return;
  }
}

// Mistral-like: all layers have a window of their own, so a long document takes little.
TEST(CacheBudget, AModelsOwnWindowsAreNotCountedAsWhole) {
  ModelSpec spec;
  spec.n_layers = 32;
  spec.n_kv_heads = 8;
  spec.attention_window.assign(32, 4096);
  const KvBudget windowed{.heads = dense_heads(spec),
                          .bytes_per_head_and_token = 512,
                          .block_size = 64,
                          .chunk_len = 2048};
  spec.attention_window.clear();
  KvBudget whole = windowed;
  whole.heads = dense_heads(spec);
  const Extent million{0, 1'000'000};
  EXPECT_EQ(whole.bytes_for(million), 15625ULL * 64 * 512 * 256);
  // 65 blocks that a window touches, and a chunk's 32 in the layer at hand.
  EXPECT_EQ(windowed.bytes_for(million), (65ULL * 256 + 32 * 8) * 64 * 512);
}

}  // namespace
}  // namespace longhaul::test
