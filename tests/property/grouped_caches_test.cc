// Workers whose caches quantise groups of tokens (KIVI): whole models against the reference model
// with the same rule, and what must not change a result or a byte: chunks, forks, batches, guesses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/kv_budget.h"
#include "model/heads/kept_blocks.h"
#include "partition/kv_format.h"
#include "tests/property/worker_cases.h"
#include "tests/support/fork_blocks.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"
#include "tests/support/reference_model.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr SequenceId kDocument{1};
constexpr SequenceId kQuestion{2};

struct GroupedCase {
  explicit GroupedCase(std::uint64_t seed) : random(seed) {
    spec = random_spec(random);
    spec.head_dim = 32 * random.integer(1, 2);
    roles = random_roles(random, spec);
    // Something to quantise: a head that sees all of the text, beside windows of all sizes.
    spec.attention_window[0] = ModelSpec::kNoWindow;
    roles.roles[0] = HeadRole::kRetrieval;
    heads = duo_attention_heads(spec, roles);
    block_size = 32 * random.integer(1, 2);
    type = kGroupedKvTypes[static_cast<std::size_t>(random.integer(0, 1))];
  }
  WorkerConfig config(std::shared_ptr<const Weights> weights) const {
    return {.weights = std::move(weights),
            .heads = heads,
            .k_type = type,
            .v_type = type,
            .block_size = block_size,
            .n_threads = 1,
            .reproducible = true};
  }
  KvFormat kv() const { return {type, type, block_size, spec.head_dim}; }
  std::vector<std::int32_t> tokens(std::int64_t n) {
    return random_tokens(random, n, spec.vocab_size);
  }
  Random random;
  ModelSpec spec;
  HeadRoles roles;
  HeadTable heads;
  std::int64_t block_size = 32;
  KvType type = KvType::kKivi4;
};

template <typename Check>
void for_grouped_cases(int n, Check check) {
  for (int round = 0; round < n * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GroupedCase c(seed);
    check(c, seed);
    if (testing::Test::HasFailure()) return;
  }
}

double mean_distance(std::span<const float> got, std::span<const double> want) {
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    sum += std::abs(static_cast<double>(got[i]) - want[i]);
  return sum / static_cast<double>(got.size());
}

// A value that differs in its last bit may get the neighbouring code, so few differ by more than
// float32's rounding; any other rule differs in all. From one code to the next is a 15th of a
// group's range with 4 bits, a third with 2.
TEST(GroupedCaches, EqualTheReferenceWithKivisRule) {
  for_grouped_cases(8, [](GroupedCase& c, std::uint64_t seed) {
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = c.spec, .seed = seed});
    const ModelFolder model(folder.path());
    const std::vector<std::int32_t> tokens = c.tokens(c.random.integer(70, 180));
    Worker worker(c.config(std::make_shared<const Weights>(Weights::load(model))));
    const std::vector<float> got = log_probabilities(
        worker, tokens, random_chunks(c.random, static_cast<std::int64_t>(tokens.size())));
    const ReferenceModel reference(model);
    const auto distance_of = [&](int bits, std::int64_t residual) {
      std::vector<KeyMask> masks = key_masks(reference.spec(), c.roles);
      for (KeyMask& mask : masks) {
        mask.kivi_bits = bits;
        mask.residual = residual;
      }
      const std::vector<double> logits = reference.logits(tokens, masks);
      return mean_distance(got,
                           log_softmax(std::span(logits).first(got.size()), c.spec.vocab_size));
    };
    const int bits = c.type == KvType::kKivi4 ? 4 : 2;
    const double ours = distance_of(bits, c.block_size);
    EXPECT_LT(ours, bits == 4 ? 2e-3 : 2e-2);
    EXPECT_GT(distance_of(0, c.block_size), 3 * ours + 1e-4) << "nothing quantised";
    EXPECT_GT(distance_of(bits, 96), 3 * ours + 1e-4) << "another residual";
    EXPECT_GT(distance_of(6 - bits, c.block_size), 3 * ours + 1e-4) << "other codes";
  });
}

// Reproducible workers: to the bit.
TEST(GroupedCaches, ChunksForksAndBatchesDoNotChangeResults) {
  for_grouped_cases(4, [](GroupedCase& c, std::uint64_t seed) {
    const auto weights = tiny_weights(c.spec, DType::kF32, seed);
    const std::vector<std::int32_t> tokens = c.tokens(171);
    Worker whole(c.config(weights));
    const std::vector<float> want =
        log_probabilities(whole, tokens, std::vector<std::int64_t>{171});
    const auto answer =
        decode(whole, kDocument, open_with(whole, kDocument, tokens, equal_chunks(171, 171)), 40);
    for (const std::int64_t chunk_len : {1, 7, 64}) {
      Worker worker(c.config(weights));
      EXPECT_EQ(log_probabilities(worker, tokens, equal_chunks(171, chunk_len)), want)
          << "chunks of " << chunk_len;
    }
    // A fork in the middle of a block, while its parent goes on, and another beside it.
    Worker worker(c.config(weights));
    const auto document = std::span(tokens).first(77);
    const auto question = std::vector(tokens.begin() + 77, tokens.end());
    open_with(worker, kDocument, document, equal_chunks(77, 30));
    for (const SequenceId child : {kQuestion, SequenceId{3}})
      done(worker.step(ForkSequence{.parent = kDocument, .child = child, .sampling = {}}));
    done(worker.step(PrefillChunk{.sequence = kDocument, .tokens = c.tokens(70)}));
    std::vector<std::int32_t> last(2);
    for (const std::int64_t child : {2, 3})
      last[static_cast<std::size_t>(child - 2)] =
          done(worker.step(PrefillChunk{
                   .sequence = {child}, .tokens = question, .after = AfterPrefill::kSample}))
              .picked.at(0)
              .token;
    for (std::size_t i = 0; i + 1 < answer.size(); ++i) {
      EXPECT_EQ(last[0], answer[i]);
      EXPECT_EQ(last[1], answer[i]);
      const StepDone step =
          done(worker.step(DecodeBatch{.rows = {{.sequence = kQuestion, .token = last[0]},
                                                {.sequence = SequenceId{3}, .token = last[1]}}}));
      last = {step.picked.at(0).token, step.picked.at(1).token};
    }
  });
}

// Guesses that come true and guesses that do not, over the ends of blocks.
TEST(GroupedCaches, WrongGuessesLeaveNoTrace) {
  for_grouped_cases(4, [](GroupedCase& c, std::uint64_t seed) {
    const auto weights = tiny_weights(c.spec, DType::kF32, seed);
    const std::vector<std::int32_t> tokens = c.tokens(90);
    Worker plain(c.config(weights));
    const auto answer =
        decode(plain, kDocument, open_with(plain, kDocument, tokens, equal_chunks(90, 90)), 80);
    Worker worker(c.config(weights));
    std::vector<std::int32_t> got{open_with(worker, kDocument, tokens, equal_chunks(90, 33))};
    std::int64_t n_wrong = 0;
    while (got.size() < answer.size()) {
      const std::size_t left = answer.size() - got.size();
      const auto n = static_cast<std::size_t>(c.random.integer(0, 40));
      const auto n_right = static_cast<std::size_t>(c.random.integer(0, 40));
      std::vector<std::int32_t> guesses;
      for (std::size_t i = 0; i < std::min(n, left); ++i) {
        const std::int32_t right = answer[std::min(got.size() + i, answer.size() - 1)];
        guesses.push_back(i < n_right ? right : (right + 1) % 40);
      }
      const auto n_guesses = static_cast<std::int64_t>(guesses.size());
      const StepDone step = done(worker.step(DecodeBatch{.rows = {{.sequence = kDocument,
                                                                   .token = got.back(),
                                                                   .guesses = guesses,
                                                                   .n_wrong = n_wrong}}}));
      for (const PickedToken& picked : step.picked) got.push_back(picked.token);
      n_wrong = 1 + n_guesses - static_cast<std::int64_t>(step.picked.size());
    }
    for (std::size_t i = 0; i < answer.size(); ++i) ASSERT_EQ(got[i], answer[i]) << i;
  });
}

TEST(GroupedCaches, BytesEqualTheFormulaAndStayWithinTheBudget) {
  for_grouped_cases(6, [](GroupedCase& c, std::uint64_t seed) {
    const Extent layers{0, c.spec.n_layers};
    const std::int64_t bs = c.block_size;
    KvBudget budget;
    budget.heads = c.heads;
    budget.bytes_per_head_and_token = static_cast<std::size_t>(c.kv().token_bytes());
    budget.open_bytes_per_head_and_token = static_cast<std::size_t>(c.kv().open_block_bytes() / bs);
    budget.block_size = bs;
    budget.chunk_len = 80;
    Worker worker(c.config(tiny_weights(c.spec, DType::kF32, seed)));
    done(worker.step(OpenSequence{.sequence = kDocument, .sampling = {}}));
    std::int64_t n = 0;
    const auto in_use = [&] { return static_cast<std::int64_t>(worker.kv_bytes_in_use()); };
    const auto of_document = [&] {
      return c.kv().bytes_of(document_blocks(c.heads, layers, bs, n),
                             open_blocks(c.heads, layers, bs, n));
    };
    for (int i = 0; i < 6; ++i) {
      const std::int64_t n_new = i == 3 ? bs - n % bs : c.random.integer(1, 80);
      done(worker.step(PrefillChunk{.sequence = kDocument, .tokens = c.tokens(n_new)}));
      n += n_new;
      ASSERT_EQ(in_use(), of_document()) << n << " tokens";
      ASSERT_LE(worker.kv_bytes_in_use(), budget.bytes_for({0, n}));
      if (c.heads.windows().empty()) {
        const auto held = worker.held_positions(kDocument, {0}, {0});
        ASSERT_EQ(static_cast<std::int64_t>(held.size()), n);
        ASSERT_EQ(held.back(), TokenPos{n - 1});
      }
    }
    done(worker.step(ForkSequence{.parent = kDocument, .child = kQuestion, .sampling = {}}));
    ASSERT_EQ(in_use(), of_document());
    std::int64_t n_fork = n;
    for (int i = 0; i < 6; ++i) {
      const std::int64_t n_new = i < 2 ? c.random.integer(1, 40) : 1;
      if (n_new == 1) {
        done(worker.step(DecodeBatch{.rows = {{.sequence = kQuestion, .token = 1}}}));
      } else {
        done(worker.step(PrefillChunk{.sequence = kQuestion, .tokens = c.tokens(n_new)}));
      }
      n_fork += n_new;
      const std::int64_t of_fork = c.kv().bytes_of(fork_blocks(c.heads, layers, bs, n, n_fork),
                                                   open_blocks(c.heads, layers, bs, n_fork));
      ASSERT_EQ(in_use(), of_document() + of_fork) << n_fork - n << " tokens of a fork";
    }
    done(worker.step(DropSequences{.sequences = {kDocument, kQuestion}}));
    ASSERT_EQ(worker.kv_bytes_in_use(), 0U);
    ASSERT_EQ(worker.kv_bytes_reserved(), 0U);
  });
}

TEST(GroupedCaches, WhatCannotBeRunIsRefusedByName) {
  GroupedCase c(1);
  c.spec.head_dim = 64;
  c.block_size = 64;
  const auto weights = tiny_weights(c.spec);
  const auto refusal = [&](const WorkerConfig& config) -> std::string {
    try {
      const Worker worker(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  const auto with = [&](const HeadPolicy& policy) {
    WorkerConfig config = c.config(weights);
    config.reproducible = false;
    config.heads = HeadTable(c.spec.n_layers, c.spec.n_kv_heads, policy);
    return refusal(config);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_NE(with({.keep = KeepBudget{.n_tokens = 10}}).find("tokens chosen by their scores"),
            std::string::npos);
  EXPECT_NE(with({.choose = ReadTopPages{}}).find("pages chosen"), std::string::npos);
  EXPECT_NE(with({.see = SeeSinkRecent{4, 20, SinkPositions::kInCache}}).find("in the cache"),
            std::string::npos);
  WorkerConfig config = c.config(weights);
  config.block_size = 48;
  EXPECT_NE(refusal(config).find("groups of 32"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::test
