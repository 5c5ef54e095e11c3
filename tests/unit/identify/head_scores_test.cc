// Scores of heads against softmax weights in double precision, and on several ranks.
#include "tools/identify/head_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "base/error.h"
#include "cluster/comm/in_process.h"
#include "tests/support/random.h"
#include "tools/eval/random_draws.h"

namespace longhaul::test {
namespace {

ModelSpec toy_spec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 40;
  spec.d_model = 32;
  spec.d_ff = 48;
  spec.n_layers = 2;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 8;
  spec.max_seq_len = 4096;
  spec.attention_window = {ModelSpec::kNoWindow, ModelSpec::kNoWindow};
  return spec;
}

struct AllScores {
  CopyScores copies;
  HeadScores needle;
  HeadScores repetition;
};

AllScores on_ranks(const Weights& weights, int n_ranks) {
  std::mutex mutex;
  AllScores scores;
  const std::int64_t vocab_size = weights.spec().vocab_size;
  Random random(base_seed());
  // A text whose last 6 tokens repeat others; and one that is written twice.
  std::vector<std::int32_t> text = random_tokens(random, 90, vocab_size);
  for (std::size_t i = 0; i < 6; ++i) text.push_back(text[20 + i]);
  std::vector<std::int32_t> twice = random_tokens(random, 50, vocab_size);
  const std::vector<std::int32_t> once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  run_in_process(n_ranks, [&](Communicator& comm) {
    TwoWayPass pass(weights, {.window = {.sink = 2, .recent = 8}, .block_size = 16}, comm);
    const ModelSpec& spec = weights.spec();
    const AllScores own{.copies = copy_scores(pass, spec, comm, {.n_random = 30, .n_copies = 3}),
                        .needle = needle_scores(pass, spec, comm, text, 6),
                        .repetition = repetition_scores(pass, spec, comm, twice, 50)};
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) scores = own;
  });
  return scores;
}

void expect_near(const HeadScores& got, const HeadScores& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << what << i;
}

TEST(HeadScoresTest, AreTheSameOnSeveralRanks) {
  const Weights weights = Weights::synthetic(toy_spec(), DType::kF32, base_seed());
  const AllScores one = on_ranks(weights, 1);
  for (const double score : one.copies.induction) EXPECT_GT(score, 0);
  for (const int n_ranks : {2, 3}) {
    const AllScores several = on_ranks(weights, n_ranks);
    expect_near(several.copies.echo, one.copies.echo, "echo ");
    expect_near(several.copies.induction, one.copies.induction, "induction ");
    expect_near(several.needle, one.needle, "needle ");
    expect_near(several.repetition, one.repetition, "repetition ");
  }
}

// The observer's numbers are softmax weights: a query's sum to 1, and the scores' definition.
TEST(HeadScoresTest, EchoIsTheMeanAttentionToEarlierCopies) {
  const Weights weights = Weights::synthetic(toy_spec(), DType::kF32, base_seed());
  run_in_process(1, [&](Communicator& comm) {
    TwoWayPass pass(weights, {.window = {.sink = 2, .recent = 8}, .block_size = 16}, comm);
    const ModelSpec& spec = weights.spec();
    const CopyText copies{.n_random = 20, .n_copies = 2, .seed = 9};
    const CopyScores scores = copy_scores(pass, spec, comm, copies);
    RandomDraws draws(9);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<std::int32_t>(draws.below(40)));
    for (int i = 0; i < 20; ++i) tokens.push_back(tokens[static_cast<std::size_t>(i)]);
    std::vector<double> echo(8);
    pass.observe_dense(tokens, [&](const DenseRows& rows) {
      for (std::int64_t row = 0; row < rows.q.dim(0); ++row) {
        const std::int64_t at = rows.positions[static_cast<std::size_t>(row)];
        for (std::int64_t head = 0; head < 4; ++head) {
          double sum = 0;
          double to_copy = 0;
          for (std::int64_t key = 0; key <= at; ++key) {
            double score = 0;
            for (std::int64_t d = 0; d < 8; ++d)
              score += static_cast<double>(rows.q[row][head][d]) *
                       static_cast<double>(rows.k[key][head / 2][d]) / std::sqrt(8.0);
            sum += std::exp(score);
            if (key == at - 20) to_copy = std::exp(score);
          }
          EXPECT_NEAR(static_cast<double>(rows.m[row][head]) +
                          std::log(static_cast<double>(rows.l[row][head])),
                      std::log(sum), 1e-4);
          echo[static_cast<std::size_t>(rows.layer.value * 4 + head)] += to_copy / sum / 20;
        }
      }
    });
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(scores.echo[i], std::max(echo[2 * i], echo[2 * i + 1]), 1e-5);
  });
}

TEST(HeadScoresTest, RazorKeepsTheTopOfBothScores) {
  CopyScores scores;
  for (int i = 0; i < 100; ++i) {
    scores.induction.push_back(i);
    scores.echo.push_back(100 - i);
  }
  const std::vector<double> gates = razor_gates(scores);
  double sum = 0;
  for (const double gate : gates) sum += gate;
  EXPECT_EQ(sum, 15);
  EXPECT_EQ(gates[99], 1);
  EXPECT_EQ(gates[86], 1);
  EXPECT_EQ(gates[85], 0);
  EXPECT_EQ(gates[0], 1);
  EXPECT_EQ(gates_of({1, 4, -1}), (std::vector<double>{0.25, 1, 0}));
}

}  // namespace
}  // namespace longhaul::test
