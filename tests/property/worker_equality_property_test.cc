// What must not change a result: how a prompt is cut into chunks, whether a sequence is a fork,
// which others are decoded with it, the block size, the number of threads. And what must be equal
// to dense attention.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "model/heads/kept_blocks.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/fork_blocks.h"
#include "tests/support/random.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

struct Case {
  explicit Case(std::uint64_t case_seed) : seed(case_seed), random(case_seed) {
    spec = random_spec(random);
    roles = random_roles(random, spec);
    weights = tiny_weights(spec, DType::kF32, seed);
  }
  std::vector<std::int32_t> tokens(std::int64_t n) {
    return random_tokens(random, n, spec.vocab_size);
  }
  std::optional<HeadTable> heads_of(const std::optional<HeadRoles>& with_roles) const {
    if (!with_roles) return std::nullopt;
    return duo_attention_heads(spec, *with_roles);
  }
  Worker worker(const std::optional<HeadRoles>& with_roles, std::int64_t block_size = 32,
                int n_threads = 1) const {
    return Worker({.weights = weights,
                   .heads = heads_of(with_roles),
                   .block_size = block_size,
                   .n_threads = n_threads});
  }
  std::uint64_t seed;
  Random random;
  ModelSpec spec;
  HeadRoles roles;
  std::shared_ptr<const Weights> weights;
};

class WorkerProperty : public testing::Test {
 protected:
  // Calls check(case) for many random cases.
  template <typename Check>
  void for_cases(int n, Check check) {
    for (int round = 0; round < n * intensity(); ++round) {
      Case c(base_seed() * 1000 + static_cast<std::uint64_t>(round));
      SCOPED_TRACE(testing::Message() << "seed " << c.seed);
      check(c);
    }
  }
};

TEST_F(WorkerProperty, ChunkLengthsDoNotChangeResults) {
  for_cases(6, [](Case& c) {
    const std::vector<std::int32_t> tokens = c.tokens(203);
    Worker whole = c.worker(c.roles);
    const std::vector<float> want =
        log_probabilities(whole, tokens, std::vector<std::int64_t>{203});
    const auto answer = decode(whole, SequenceId{1},
                               open_with(whole, SequenceId{1}, tokens, equal_chunks(203, 203)), 12);
    for (const std::int64_t chunk_len : {1, 7, 64, 1000}) {
      Worker worker = c.worker(c.roles);
      const auto chunks = equal_chunks(203, chunk_len);
      EXPECT_TRUE(close(log_probabilities(worker, tokens, chunks), std::span<const float>(want),
                        logits_tolerance(DType::kF32)))
          << "chunks of " << chunk_len;
      EXPECT_EQ(decode(worker, SequenceId{1}, open_with(worker, SequenceId{1}, tokens, chunks), 12),
                answer)
          << "chunks of " << chunk_len;
    }
  });
}

// With a key for all that is gone (razor), in every layer and beside heads that see all.
TEST_F(WorkerProperty, CompensationKeysDoNotDependOnChunksAndForks) {
  for_cases(3, [](Case& c) {
    const HeadTable heads = with_compensation_keys(duo_attention_heads(c.spec, c.roles));
    const auto worker = [&] {
      return Worker({.weights = c.weights, .heads = heads, .block_size = 16, .n_threads = 1});
    };
    const std::vector<std::int32_t> tokens = c.tokens(203);
    const std::span<const std::int32_t> all = tokens;
    Worker whole = worker();
    const std::vector<float> want = log_probabilities(whole, all, equal_chunks(203, 203));
    for (const std::int64_t chunk_len : {1, 7, 64}) {
      Worker other = worker();
      EXPECT_TRUE(close(log_probabilities(other, all, equal_chunks(203, chunk_len)),
                        std::span<const float>(want), logits_tolerance(DType::kF32)))
          << "chunks of " << chunk_len;
    }
    const auto answer = decode(whole, SequenceId{1},
                               open_with(whole, SequenceId{1}, all, equal_chunks(203, 203)), 12);
    open_with(whole, SequenceId{2}, all.first(150), equal_chunks(150, 50));
    done(whole.step(ForkSequence{.parent = SequenceId{2}, .child = SequenceId{3}, .sampling = {}}));
    done(whole.step(PrefillChunk{.sequence = SequenceId{2}, .tokens = c.tokens(30)}));
    const StepDone read =
        done(whole.step(PrefillChunk{.sequence = SequenceId{3},
                                     .tokens = {tokens.begin() + 150, tokens.end()},
                                     .after = AfterPrefill::kSample}));
    EXPECT_EQ(decode(whole, SequenceId{3}, read.picked.at(0).token, 12), answer);
  });
}

TEST_F(WorkerProperty, BlockSizeAndThreadsDoNotChangeResults) {
  for_cases(6, [](Case& c) {
    const std::vector<std::int32_t> tokens = c.tokens(150);
    const auto chunks = random_chunks(c.random, 150);
    Worker first = c.worker(c.roles, 16, 1);
    const std::vector<float> want = log_probabilities(first, tokens, chunks);
    for (const std::int64_t block_size : {16, 48, 256}) {
      for (const int n_threads : {1, 2, 3}) {
        Worker worker = c.worker(c.roles, block_size, n_threads);
        EXPECT_TRUE(close(log_probabilities(worker, tokens, chunks), std::span<const float>(want),
                          logits_tolerance(DType::kF32)))
            << "blocks of " << block_size << ", " << n_threads << " threads";
      }
    }
  });
}

TEST_F(WorkerProperty, TheSameRunTwiceGivesTheSameBits) {
  for_cases(6, [](Case& c) {
    const std::vector<std::int32_t> tokens = c.tokens(150);
    const auto chunks = random_chunks(c.random, 150);
    Worker one = c.worker(c.roles, 32, 2);
    Worker two = c.worker(c.roles, 32, 2);
    EXPECT_EQ(log_probabilities(one, tokens, chunks), log_probabilities(two, tokens, chunks));
    EXPECT_EQ(log_probabilities(one, tokens, chunks), log_probabilities(two, tokens, chunks));
  });
}

TEST_F(WorkerProperty, RetrievalEverywhereIsDenseBitForBit) {
  for_cases(6, [](Case& c) {
    const std::vector<std::int32_t> tokens = c.tokens(120);
    const auto chunks = random_chunks(c.random, 120);
    Worker dense = c.worker(std::nullopt);
    HeadRoles roles = HeadRoles::all_retrieval(c.spec.n_layers, c.spec.n_kv_heads);
    roles.sink = 3;
    roles.recent = 5;
    Worker retrieval = c.worker(roles);
    EXPECT_EQ(log_probabilities(dense, tokens, chunks),
              log_probabilities(retrieval, tokens, chunks));
  });
}

TEST_F(WorkerProperty, AWindowAsLongAsTheTextIsDenseBitForBit) {
  for_cases(6, [](Case& c) {
    const std::vector<std::int32_t> tokens = c.tokens(120);
    const auto chunks = random_chunks(c.random, 120);
    Worker dense = c.worker(std::nullopt);
    for (const auto& [sink, recent] : {std::pair{0, 120}, std::pair{120, 1}, std::pair{64, 1000}}) {
      HeadRoles roles = c.roles;
      roles.sink = sink;
      roles.recent = recent;
      Worker streaming = c.worker(roles);
      EXPECT_EQ(log_probabilities(streaming, tokens, chunks),
                log_probabilities(dense, tokens, chunks))
          << "sink " << sink << ", recent " << recent;
    }
  });
}

TEST_F(WorkerProperty, AForkContinuesAsIfItHadNotForked) {
  for_cases(8, [](Case& c) {
    const std::int64_t n_document = c.random.integer(1, 150);
    const std::int64_t n_question = c.random.integer(1, 40);
    const std::vector<std::int32_t> document = c.tokens(n_document);
    const SamplingParams sampling{.temperature = 1.2, .seed = c.seed};
    Worker worker = c.worker(c.roles);
    const SequenceId parent{1};
    open_with(worker, parent, document, random_chunks(c.random, n_document));
    std::vector<std::vector<std::int32_t>> questions;
    std::vector<std::vector<std::int32_t>> answers;
    for (std::int64_t i = 0; i < 3; ++i) {  // three questions on one document, the parent unharmed
      const SequenceId child{10 + i};
      questions.push_back(c.tokens(n_question));
      done(worker.step(ForkSequence{.parent = parent, .child = child, .sampling = sampling}));
      const StepDone result = done(worker.step(PrefillChunk{
          .sequence = child, .tokens = questions.back(), .after = AfterPrefill::kSample}));
      answers.push_back(decode(worker, child, result.picked.at(0).token, 10));
    }
    done(worker.step(DropSequences{.sequences = {parent}}));
    for (std::size_t i = 0; i < 3; ++i) {
      Worker fresh = c.worker(c.roles);
      std::vector<std::int32_t> all = document;
      all.insert(all.end(), questions[i].begin(), questions[i].end());
      const auto chunks = equal_chunks(n_document + n_question, n_document);
      EXPECT_EQ(answers[i],
                decode(fresh, parent, open_with(fresh, parent, all, chunks, sampling), 10));
    }
  });
}

TEST_F(WorkerProperty, ABatchDecodesAsOneByOne) {
  for_cases(8, [](Case& c) {
    constexpr std::int64_t kSequences = 5;
    Worker together = c.worker(c.roles);
    Worker alone = c.worker(c.roles);
    DecodeBatch batch;
    std::vector<std::vector<std::int32_t>> want;
    std::vector<std::vector<std::int32_t>> got;
    for (std::int64_t i = 0; i < kSequences; ++i) {
      const std::int64_t n = c.random.integer(1, 120);
      const std::vector<std::int32_t> prompt = c.tokens(n);
      const SamplingParams sampling{.temperature = i % 2 == 0 ? 0.0 : 0.9,
                                    .top_k = 20,
                                    .seed = static_cast<std::uint64_t>(i)};
      const SequenceId id{i};
      const auto chunks = random_chunks(c.random, n);
      const std::int32_t first = open_with(alone, id, prompt, chunks, sampling);
      want.push_back(decode(alone, id, first, 15));
      batch.rows.push_back({id, open_with(together, id, prompt, chunks, sampling)});
      got.push_back({batch.rows.back().token});
    }
    for (int step = 0; step < 15; ++step) {
      const StepDone result = done(together.step(batch));
      ASSERT_EQ(result.picked.size(), batch.rows.size());
      for (std::size_t i = 0; i < batch.rows.size(); ++i) {
        EXPECT_EQ(result.picked[i].sequence, batch.rows[i].sequence);
        batch.rows[i].token = result.picked[i].token;
        got[i].push_back(result.picked[i].token);
      }
    }
    EXPECT_EQ(got, want);
  });
}

// Right guesses, wrong ones and some that are right at first; bytes are those of the tokens that
// count as soon as nothing is a guess any more.
TEST_F(WorkerProperty, GuessesChangeNoAnswer) {
  for_cases(8, [](Case& c) {
    HeadTable heads = duo_attention_heads(c.spec, c.roles);
    // Bytes do not follow from the roles then.
    const bool chooses = heads.window({0}, {0}).is_unlimited() && c.random.chance(0.5);
    if (chooses) heads.set({0}, {0}, {.keep = KeepBudget{.n_tokens = 24, .n_recent = 4}});
    const auto make = [&] {
      return Worker({.weights = c.weights, .heads = heads, .block_size = 16, .n_threads = 1});
    };
    const SequenceId id{1};
    const std::int64_t n_prompt = c.random.integer(30, 150);
    const std::vector<std::int32_t> prompt = c.tokens(n_prompt);
    const auto chunks = random_chunks(c.random, n_prompt);
    const SamplingParams sampling{
        .temperature = c.random.chance(0.5) ? 0.0 : 0.9, .top_k = 20, .seed = c.seed};
    Worker plain = make();
    const std::vector<std::int32_t> want =
        decode(plain, id, open_with(plain, id, prompt, chunks, sampling), 200);

    Worker worker = make();
    std::vector<std::int32_t> got = {open_with(worker, id, prompt, chunks, sampling)};
    std::int64_t n_wrong = 0;
    while (got.size() < 170) {
      const std::int64_t n = c.random.chance(0.2) ? 0 : c.random.integer(1, 25);
      std::vector<std::int32_t> guesses(want.begin() + static_cast<std::ptrdiff_t>(got.size()),
                                        want.begin() + static_cast<std::ptrdiff_t>(got.size()) + n);
      if (n > 0 && c.random.chance(0.7))
        guesses[static_cast<std::size_t>(c.random.integer(0, n - 1))] = c.tokens(1)[0];
      const StepDone step =
          done(worker.step(DecodeBatch{.rows = {{id, got.back(), nullptr, guesses, n_wrong}}}));
      for (const PickedToken& picked : step.picked) got.push_back(picked.token);
      n_wrong = n + 1 - static_cast<std::int64_t>(step.picked.size());
      ASSERT_GE(n_wrong, 0);
      if (n > 0 || chooses) continue;
      const auto n_tokens = n_prompt + static_cast<std::int64_t>(got.size()) - 1;
      const std::int64_t n_blocks = sequence_blocks(heads, {0, c.spec.n_layers}, 16, n_tokens);
      const KvBlockShape shape{.block_size = 16, .head_dim = c.spec.head_dim};
      ASSERT_EQ(step.kv_bytes_in_use, static_cast<std::size_t>(n_blocks) * shape.bytes());
    }
    EXPECT_EQ(got, std::vector<std::int32_t>(want.begin(), want.begin() + std::ssize(got)));
  });
}

TEST_F(WorkerProperty, BytesInUseFollowTheFormula) {
  for_cases(10, [](Case& c) {
    const HeadTable heads = duo_attention_heads(c.spec, c.roles);
    const Extent layers{0, c.spec.n_layers};
    const KvBlockShape shape{.block_size = 32, .head_dim = c.spec.head_dim};
    const auto whole_bytes = [&](std::int64_t n_tokens) {
      return static_cast<std::size_t>(sequence_blocks(heads, layers, 32, n_tokens)) * shape.bytes();
    };
    const auto fork_bytes = [&](std::int64_t n_shared, std::int64_t n_tokens) {
      return static_cast<std::size_t>(fork_blocks(heads, layers, 32, n_shared, n_tokens)) *
             shape.bytes();
    };
    Worker worker = c.worker(c.roles);
    const SequenceId parent{1};
    const SequenceId child{2};
    done(worker.step(OpenSequence{.sequence = parent, .sampling = {}}));
    std::int64_t n = 0;
    for (const std::int64_t chunk : random_chunks(c.random, 170)) {
      const StepDone result =
          done(worker.step(PrefillChunk{.sequence = parent, .tokens = c.tokens(chunk)}));
      n += chunk;
      ASSERT_EQ(result.kv_bytes_in_use, whole_bytes(n)) << n << " tokens";
    }
    done(worker.step(ForkSequence{.parent = parent, .child = child, .sampling = {}}));
    for (std::int64_t grown = n; grown < n + 70; ++grown) {
      ASSERT_EQ(worker.kv_bytes_in_use(), whole_bytes(n) + fork_bytes(n, grown));
      done(worker.step(DecodeBatch{.rows = {{child, 1}}}));
    }
    done(worker.step(DropSequences{.sequences = {parent}}));
    ASSERT_EQ(worker.kv_bytes_in_use(), whole_bytes(n + 70));
    done(worker.step(DropSequences{.sequences = {child}}));
    ASSERT_EQ(worker.kv_bytes_in_use(), 0U);
    ASSERT_EQ(worker.kv_bytes_reserved(), 0U);
  });
}

}  // namespace
}  // namespace longhaul::test
