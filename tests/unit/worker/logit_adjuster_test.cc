// Penalties and biases against a plain reference in double precision that walks over the texts, and
// through a worker, whose log-probabilities stay those of the unmodified distribution.
#include "worker/logit_adjuster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "tests/support/random.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/sampler.h"
#include "worker/worker.h"

namespace longhaul {
namespace {

using Ids = std::vector<std::int32_t>;

struct Text {
  Ids prompt;
  Ids answer;
};

// As vLLM's documentation and OpenAI's say it: bias, then the repetition penalty over prompt and
// answer, then frequency and presence over the answer.
std::vector<double> reference(const std::vector<float>& logits, const LogitRules& rules,
                              const Text& text) {
  std::vector<double> out(logits.begin(), logits.end());
  for (std::size_t id = 0; id < out.size(); ++id) {
    for (const TokenBias& bias : rules.bias) {
      if (bias.token == static_cast<std::int32_t>(id)) out[id] += static_cast<double>(bias.bias);
    }
    const auto n_in = [&](const Ids& ids) {
      return std::count(ids.begin(), ids.end(), static_cast<std::int32_t>(id));
    };
    if (n_in(text.prompt) + n_in(text.answer) > 0)
      out[id] =
          out[id] > 0 ? out[id] / rules.repetition_penalty : out[id] * rules.repetition_penalty;
    const auto n = static_cast<double>(n_in(text.answer));
    out[id] -= rules.frequency_penalty * n;
    if (n > 0) out[id] -= rules.presence_penalty;
  }
  return out;
}

LogitRules random_rules(test::Random& random, std::int64_t vocab_size, const Ids& prompt) {
  LogitRules rules;
  if (random.chance(0.7)) rules.repetition_penalty = random.uniform(0.5, 2.0);
  if (random.chance(0.7)) rules.frequency_penalty = random.uniform(-2.0, 2.0);
  if (random.chance(0.7)) rules.presence_penalty = random.uniform(-2.0, 2.0);
  std::set<std::int32_t> biased;
  for (std::int64_t i = random.integer(0, 5); i > 0; --i)
    biased.insert(static_cast<std::int32_t>(random.integer(0, vocab_size - 1)));
  for (const std::int32_t id : biased)
    rules.bias.push_back({id, static_cast<float>(random.uniform(-100, 100))});
  rules.prompt_tokens = IdSet(vocab_size);
  for (const std::int32_t id : prompt) rules.prompt_tokens.insert(id);
  return rules;
}

TEST(LogitAdjuster, DoesWhatThePlainReferenceDoes) {
  const auto seed = test::base_seed();
  SCOPED_TRACE(seed);
  test::Random random(seed);
  std::vector<float> memory;
  for (int i = 0; i < 300; ++i) {
    const std::int64_t vocab_size = random.integer(1, 200);
    std::vector<float> logits;
    for (std::int64_t id = 0; id < vocab_size; ++id)
      logits.push_back(static_cast<float>(random.uniform(-10, 10)));
    const Text text{.prompt = test::random_tokens(random, random.integer(0, 100), vocab_size),
                    .answer = test::random_tokens(random, random.integer(0, 50), vocab_size)};
    const LogitRules rules = random_rules(random, vocab_size, text.prompt);
    LogitAdjuster adjuster(std::make_shared<const LogitRules>(rules));
    for (const std::int32_t id : text.answer) adjuster.add(id);
    const std::span<const float> got = adjuster.apply(logits, memory);
    const std::vector<double> want = reference(logits, rules, text);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t id = 0; id < want.size(); ++id)
      EXPECT_NEAR(got[id], want[id], 2e-5 * std::max(1.0, std::abs(want[id]))) << i << ", " << id;
  }
}

// By hand: token 1 stands in the prompt, 2 twice in the answer, 3 in both.
TEST(LogitAdjuster, CountsPromptsOnceAndAnswersEachTime) {
  LogitRules rules{.bias = {{0, -3}, {1, 2}},
                   .repetition_penalty = 2,
                   .frequency_penalty = 0.5,
                   .presence_penalty = 0.25,
                   .prompt_tokens = IdSet(5)};
  rules.prompt_tokens.insert(1);
  rules.prompt_tokens.insert(3);
  LogitAdjuster adjuster(std::make_shared<const LogitRules>(rules));
  for (const std::int32_t id : {2, 3, 2}) adjuster.add(id);
  std::vector<float> memory;
  EXPECT_THAT(adjuster.apply(std::vector<float>{1, 2, -1, 4, 5}, memory),
              testing::ElementsAre(-2, 2, -2 - 1 - 0.25, 2 - 0.5 - 0.25, 5));
}

TEST(LogitAdjuster, RefusesWhatMakesNoSense) {
  const auto check = [](const LogitRules& rules) {
    check_logit_rules(std::make_shared<const LogitRules>(rules), 10);
  };
  EXPECT_THROW(check({.bias = {{10, 1}}}), Error);
  EXPECT_THROW(check({.bias = {{-1, 1}}}), Error);
  EXPECT_THROW(check({.bias = {{1, std::nanf("")}}}), Error);
  EXPECT_THROW(check({.repetition_penalty = 0}), Error);
  EXPECT_THROW(check({.presence_penalty = INFINITY}), Error);
  EXPECT_THROW(check({.prompt_tokens = IdSet(11)}), Error);
  EXPECT_NO_THROW(check({.bias = {{9, 1}}, .prompt_tokens = IdSet(10)}));
}

// Biases, frequency and presence shift logits, so they can be seen in log-probabilities. Greedy and
// drawn, alone and from a fork, after chunks of any length.
TEST(LogitAdjuster, InAWorkerChangesPicksAndNotLogprobs) {
  const LogitRules rules{.bias = {{5, 1.0F}, {6, -100.0F}},
                         .frequency_penalty = 0.3,
                         .presence_penalty = 0.7,
                         .prompt_tokens = IdSet()};
  for (const double temperature : {0.0, 2.0}) {
    Worker worker({.weights = test::tiny_weights(), .n_threads = 1});
    const SequenceId parent{1};
    const SequenceId child{2};
    const SamplingParams sampling{.temperature = temperature, .seed = 3, .n_logprobs = 97};
    test::done(worker.step(OpenSequence{.sequence = parent, .sampling = {}}));
    test::done(worker.step(PrefillChunk{
        .sequence = parent, .tokens = {5, 6, 7}, .after = AfterPrefill::kDocumentEnd}));
    test::done(worker.step(ForkSequence{.parent = parent,
                                        .child = child,
                                        .sampling = sampling,
                                        .rules = std::make_shared<const LogitRules>(rules)}));
    PickedToken picked =
        test::done(worker.step(PrefillChunk{
                       .sequence = child, .tokens = {8}, .after = AfterPrefill::kSample}))
            .picked.at(0);
    Sampler sampler;
    Text text{.prompt = {5, 6, 7, 8}, .answer = {}};
    std::map<std::int32_t, int> counts;
    for (std::int64_t position = 4; position < 40; ++position) {
      std::vector<float> raw(97);
      double sum = 0;
      for (const TokenLogprob& t : picked.top) {
        raw[static_cast<std::size_t>(t.token)] = t.logprob;
        sum += std::exp(static_cast<double>(t.logprob));
      }
      EXPECT_NEAR(sum, 1, 1e-5);  // nothing was taken away
      EXPECT_EQ(picked.logprob, raw[static_cast<std::size_t>(picked.token)]);
      std::vector<float> adjusted;
      for (const double logit : reference(raw, rules, text))
        adjusted.push_back(static_cast<float>(logit));
      const auto best = std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin();
      const std::int32_t want = temperature > 0 ? sampler.sample(adjusted, sampling, {position})
                                                : static_cast<std::int32_t>(best);
      ASSERT_EQ(picked.token, want) << "position " << position;
      EXPECT_NE(picked.token, 6);
      text.answer.push_back(picked.token);
      ++counts[picked.token];
      picked = test::done(worker.step(DecodeBatch{.rows = {{child, picked.token}}})).picked.at(0);
    }
    EXPECT_GT(counts.size(), 10U);  // without the penalties a greedy tiny model repeats itself
  }
}

}  // namespace
}  // namespace longhaul
