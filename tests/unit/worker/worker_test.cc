// The commands one by one: what they answer, what they refuse, what they leave behind.
#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "model/heads/kept_blocks.h"
#include "tests/support/compare.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

using test::decode;
using test::done;
using test::prefill;
using testing::HasSubstr;

constexpr SequenceId kA{1};
constexpr SequenceId kB{2};

StepFailed failed(const StepResult& result) {
  const auto* f = std::get_if<StepFailed>(&result);
  return f != nullptr ? *f : StepFailed{.code = ErrorCode::kInternal, .message = "did not fail"};
}

Worker make_worker(std::optional<std::size_t> limit = {}) {
  return Worker({.weights = test::tiny_weights(), .cache_limit_bytes = limit, .n_threads = 1});
}

TEST(Worker, PrefillThenDecode) {
  Worker worker = make_worker();
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
  const std::vector<std::int32_t> prompt{1, 2, 3, 4, 5};
  StepDone result = prefill(worker, kA, prompt, 100);
  ASSERT_EQ(result.picked.size(), 1U);
  EXPECT_EQ(result.picked[0].sequence, kA);
  EXPECT_TRUE(result.picked[0].top.empty());
  EXPECT_TRUE(result.scored.empty());
  EXPECT_GT(result.kv_bytes_in_use, 0U);
  EXPECT_EQ(decode(worker, kA, result.picked[0].token, 10).size(), 11U);
  done(worker.step(DropSequences{.sequences = {kA}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
  EXPECT_EQ(worker.kv_bytes_reserved(), 0U);
}

// Two values of a dim each, and for codes two f16 of a token's K and of its V.
TEST(Worker, ATokenTakesTheBytesOfItsCacheType) {
  const ModelSpec spec = test::tiny_spec();
  const auto d = static_cast<double>(spec.head_dim);
  const struct {
    KvType type;
    double bytes;  // of K and V of one head
  } cases[] = {{KvType::kF32, 8 * d},
               {KvType::kBf16, 4 * d},
               {KvType::kInt8, 2 * d + 8},
               {KvType::kFp8, 2 * d + 4},
               {KvType::kInt4, d + 8}};
  constexpr std::int64_t kTokens = 2048;
  for (const auto& c : cases) {
    Worker worker(
        {.weights = test::tiny_weights(), .k_type = c.type, .v_type = c.type, .n_threads = 1});
    done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
    prefill(worker, kA, std::vector<std::int32_t>(kTokens, 3), 512);
    const double want = c.bytes * static_cast<double>(kTokens * spec.n_layers * spec.n_kv_heads);
    EXPECT_NEAR(static_cast<double>(worker.kv_bytes_in_use()), want, 0.03 * want)
        << name_of(c.type);
  }
}

TEST(Worker, PicksNothingUnlessAsked) {
  Worker worker = make_worker();
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
  EXPECT_TRUE(done(worker.step(PrefillChunk{.sequence = kA, .tokens = {1, 2, 3}})).picked.empty());
  EXPECT_TRUE(done(worker.step(DecodeBatch{})).picked.empty());
}

TEST(Worker, LogprobsAreOfTheUnmodifiedDistribution) {
  Worker worker = make_worker();
  const auto last = [&](SequenceId id, const SamplingParams& sampling) {
    done(worker.step(OpenSequence{.sequence = id, .sampling = sampling}));
    return prefill(worker, id, std::vector<std::int32_t>{5, 6, 7}, 100).picked.at(0);
  };
  const PickedToken greedy = last(kA, {.n_logprobs = 97});
  ASSERT_EQ(greedy.top.size(), 97U);
  EXPECT_EQ(greedy.top[0].token, greedy.token);
  EXPECT_EQ(greedy.top[0].logprob, greedy.logprob);
  double sum = 0;
  for (const TokenLogprob& t : greedy.top) sum += std::exp(t.logprob);
  EXPECT_NEAR(sum, 1.0, 1e-5);
  for (std::size_t i = 1; i < 97; ++i) EXPECT_LE(greedy.top[i].logprob, greedy.top[i - 1].logprob);

  const PickedToken hot = last(kB, {.temperature = 5.0, .top_k = 3, .seed = 1, .n_logprobs = 5});
  ASSERT_EQ(hot.top.size(), 5U);
  EXPECT_EQ(hot.top[0].logprob, greedy.top[0].logprob);
  const PickedToken zero = last(SequenceId{3}, {.n_logprobs = 0});
  EXPECT_TRUE(zero.top.empty());
  EXPECT_EQ(zero.logprob, greedy.logprob);
  EXPECT_EQ(last(SequenceId{4}, {.n_logprobs = 1000}).top.size(), 97U);
}

TEST(Worker, DrawsWithTheSeedAndThePositionOfThePickedToken) {
  Worker worker = make_worker();
  const SamplingParams sampling{.temperature = 3.0, .top_k = 50, .seed = 11, .n_logprobs = 97};
  done(worker.step(OpenSequence{.sequence = kA, .sampling = sampling}));
  PickedToken picked = prefill(worker, kA, std::vector<std::int32_t>{5, 6, 7}, 2).picked.at(0);
  Sampler sampler;
  for (std::int64_t position = 3; position < 20; ++position) {
    std::vector<float> logits(97);
    for (const TokenLogprob& t : picked.top) logits[static_cast<std::size_t>(t.token)] = t.logprob;
    ASSERT_EQ(picked.token, sampler.sample(logits, sampling, {position}))
        << "position " << position;
    picked = done(worker.step(DecodeBatch{.rows = {{kA, picked.token}}})).picked.at(0);
  }
}

// Pearson's, over tokens that are expected five times at least and the rest together.
double chi_square(const std::vector<std::int64_t>& counts, const PickedToken& truth,
                  std::int64_t& n_classes) {
  const auto n =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double sum = 0;
  double rest_expected = n;
  double rest_seen = n;
  n_classes = 1;
  const auto add = [&](double seen, double expected) {
    sum += (seen - expected) * (seen - expected) / expected;
  };
  for (const TokenLogprob& t : truth.top) {
    const double expected = n * std::exp(t.logprob);
    const auto seen = static_cast<double>(counts[static_cast<std::size_t>(t.token)]);
    if (expected < 5) continue;
    add(seen, expected);
    rest_expected -= expected;
    rest_seen -= seen;
    ++n_classes;
  }
  if (rest_expected >= 5) add(rest_seen, rest_expected);
  return sum;
}

// What is picked after a guess that came true is distributed as the model says, at temperature 1.
TEST(Worker, SamplesBehindGuessesFromTheModelsDistribution) {
  Worker worker = make_worker();
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {.n_logprobs = 97}}));
  PickedToken first = prefill(worker, kA, std::vector<std::int32_t>{5, 6, 7}, 2).picked.at(0);
  const std::int32_t token = first.token;
  SequenceId next{100};
  const auto truth_after = [&](std::vector<std::int32_t> tokens) {
    const SequenceId id = next = {next.value + 1};
    done(worker.step(ForkSequence{.parent = kA, .child = id, .sampling = {.n_logprobs = 97}}));
    PickedToken last;
    for (const std::int32_t t : tokens)
      last = done(worker.step(DecodeBatch{.rows = {{id, t}}})).picked.at(0);
    return last;
  };
  const PickedToken truth = truth_after({token});
  const PickedToken truth_behind = truth_after({token, truth.token});
  std::vector<std::int64_t> counts(97);
  std::vector<std::int64_t> counts_behind(97);
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    const SequenceId id{50};
    done(worker.step(ForkSequence{
        .parent = kA, .child = id, .sampling = {.temperature = 1.0, .seed = 1000 + seed}}));
    const StepDone step =
        done(worker.step(DecodeBatch{.rows = {{id, token, nullptr, {truth.token, 3}, 0}}}));
    ++counts[static_cast<std::size_t>(step.picked.at(0).token)];
    if (step.picked.size() > 1) ++counts_behind[static_cast<std::size_t>(step.picked[1].token)];
    done(worker.step(DropSequences{{id}}));
  }
  // With f degrees of freedom it has mean f and variance 2 f.
  for (const auto& [seen, model] : {std::pair{&counts, &truth}, {&counts_behind, &truth_behind}}) {
    std::int64_t n_classes = 0;
    const double value = chi_square(*seen, *model, n_classes);
    const auto freedom = static_cast<double>(n_classes - 1);
    EXPECT_GT(n_classes, 3);
    EXPECT_LT(value, freedom + 4 * std::sqrt(2 * freedom));
    RecordProperty("chi_square", std::to_string(value) + " of " + std::to_string(freedom));
  }
}

// As the example beside DecodeKind.
TEST(Worker, ADraftModelTakesItsOwnGuessesBack) {
  Worker worker = make_worker();
  for (const SequenceId id : {kA, kB}) {
    done(worker.step(OpenSequence{.sequence = id, .sampling = {}}));
    prefill(worker, id, std::vector<std::int32_t>{5, 6, 7}, 2);
  }
  const auto pick = [&](DecodeBatch::Row row, DecodeKind kind = DecodeKind::kAnswer) {
    return done(worker.step(DecodeBatch{.rows = {std::move(row)}, .kind = kind}))
        .picked.at(0)
        .token;
  };
  const auto certain = [&](std::int32_t token) { return pick({kB, token}); };
  EXPECT_EQ(pick({kA, 5, nullptr, {7, 8}}, DecodeKind::kDraft),
            (certain(5), certain(7), certain(8)));
  pick({kA, 3}, DecodeKind::kDraftFurther);
  pick({kA, 4}, DecodeKind::kDraftFurther);
  EXPECT_EQ(pick({kA, 9, nullptr, {}, 1}, DecodeKind::kDraft), (certain(3), certain(9)));
}

TEST(Worker, RefusesGuessesThatCannotBe) {
  Worker worker = make_worker();
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
  const std::int32_t token =
      prefill(worker, kA, std::vector<std::int32_t>{5, 6, 7}, 2).picked.at(0).token;
  const auto message = [&](DecodeBatch::Row row) {
    return failed(worker.step(DecodeBatch{.rows = {std::move(row)}})).message;
  };
  EXPECT_THAT(message({kA, token, nullptr, {97}}), HasSubstr("not in the vocabulary"));
  EXPECT_THAT(message({kA, token, nullptr, {}, 1}), HasSubstr("1 wrong guesses of 0"));
  EXPECT_THAT(message({kA, token, std::make_shared<const IdSet>(IdSet::full(97)), {1}}),
              HasSubstr("what is allowed"));
  EXPECT_THAT(failed(worker.step(DecodeBatch{.rows = {{kA, token, nullptr, {1}}},
                                             .kind = DecodeKind::kDraftFurther}))
                  .message,
              HasSubstr("looks further"));
  done(worker.step(DecodeBatch{.rows = {{kA, token, nullptr, {1, 2}}}}));
  EXPECT_THAT(failed(worker.step(ForkSequence{.parent = kA, .child = kB, .sampling = {}})).message,
              HasSubstr("nobody said yet"));
}

TEST(Worker, ScoresEveryTokenButTheFirstAcrossChunks) {
  Worker worker = make_worker();
  test::Random random(test::base_seed());
  const std::vector<std::int32_t> tokens = test::random_tokens(random, 40, 97);
  const auto score = [&](SequenceId id, std::size_t chunk_len) {
    done(worker.step(OpenSequence{.sequence = id, .sampling = {}}));
    std::vector<PickedToken> scored;
    for (std::size_t i = 0; i < tokens.size(); i += chunk_len) {
      const std::size_t end = std::min(i + chunk_len, tokens.size());
      const StepDone result = done(
          worker.step(PrefillChunk{.sequence = id,
                                   .tokens = {tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                              tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                                   .score_logprobs = 2}));
      EXPECT_TRUE(result.picked.empty());
      scored.insert(scored.end(), result.scored.begin(), result.scored.end());
    }
    return scored;
  };
  const auto whole = score(SequenceId{10}, 40);
  ASSERT_EQ(whole.size(), 39U);
  const test::Tolerance tolerance = test::logits_tolerance(DType::kF32);
  std::int64_t id = 11;
  for (const std::size_t chunk_len : {1U, 7U, 39U}) {
    const auto scored = score(SequenceId{id++}, chunk_len);
    ASSERT_EQ(scored.size(), 39U) << chunk_len;
    for (std::size_t i = 0; i < scored.size(); ++i) {
      EXPECT_EQ(scored[i].token, tokens[i + 1]);
      EXPECT_EQ(scored[i].top.size(), 2U);
      EXPECT_NEAR(scored[i].logprob, whole[i].logprob, tolerance.absolute);
    }
  }
}

TEST(Worker, AForkContinuesWithTheCacheOfItsParentAndItsOwnSampling) {
  Worker worker = make_worker();
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
  done(worker.step(PrefillChunk{.sequence = kA, .tokens = {1, 2, 3}}));
  const std::size_t before = worker.kv_bytes_in_use();
  done(worker.step(ForkSequence{
      .parent = kA, .child = kB, .sampling = {.temperature = 1, .seed = 5, .n_logprobs = 1}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), before);
  const StepDone result = prefill(worker, kB, std::vector<std::int32_t>{4}, 1);
  EXPECT_EQ(result.picked.at(0).top.size(), 1U);
  EXPECT_GT(worker.kv_bytes_in_use(), before);
  done(worker.step(DropSequences{.sequences = {kA}}));
  decode(worker, kB, 3, 5);
  done(worker.step(DropSequences{.sequences = {kB}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
}

TEST(Worker, RefusesByNameAndChangesNothing) {
  Worker worker = make_worker();
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
  const auto refuses = [&](const StepCommand& command, const std::string& text) {
    const StepFailed f = failed(worker.step(command));
    EXPECT_EQ(f.code, ErrorCode::kInvalidArgument) << f.message;
    EXPECT_THAT(f.message, HasSubstr(text));
  };
  refuses(OpenSequence{.sequence = kA, .sampling = {}}, "there is a sequence 1 already");
  refuses(OpenSequence{.sequence = kB, .sampling = {.top_p = 7}}, "top_p");
  refuses(ForkSequence{.parent = kB, .child = SequenceId{3}, .sampling = {}},
          "there is no sequence 2");
  refuses(ForkSequence{.parent = kA, .child = kA, .sampling = {}}, "sequence 1 already");
  refuses(DropSequences{.sequences = {kA, kB}}, "there is no sequence 2");
  refuses(PrefillChunk{.sequence = kB, .tokens = {1}}, "there is no sequence 2");
  refuses(PrefillChunk{.sequence = kA, .tokens = {}}, "without tokens");
  refuses(PrefillChunk{.sequence = kA, .tokens = {1, 97}}, "token 97");
  refuses(PrefillChunk{.sequence = kA, .tokens = {-1}}, "token -1");
  refuses(DecodeBatch{.rows = {{kA, 1}, {kA, 2}}}, "sequence 1 is twice");
  refuses(DecodeBatch{.rows = {{kA, 1}, {kB, 2}}}, "there is no sequence 2");
  refuses(DecodeBatch{.rows = {{kA, 1000}}}, "token 1000");
  EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
  EXPECT_EQ(prefill(worker, kA, std::vector<std::int32_t>{1}, 1).picked.size(), 1U);
}

TEST(Worker, AFullCacheIsAFailedStepThatItemises) {
  const ModelSpec spec = test::tiny_spec();
  const KvBlockShape shape{.block_size = 64, .head_dim = spec.head_dim};
  const std::size_t one = 9 * shape.bytes();  // 64 tokens of 3 layers of 3 heads
  Worker worker = make_worker(2 * one + shape.bytes());
  done(worker.step(OpenSequence{.sequence = kA, .sampling = {}}));
  done(worker.step(OpenSequence{.sequence = kB, .sampling = {}}));
  test::Random random(1);
  const auto tokens = test::random_tokens(random, 64, 97);
  done(worker.step(PrefillChunk{.sequence = kA, .tokens = tokens}));
  done(worker.step(PrefillChunk{.sequence = kB, .tokens = tokens}));
  const StepFailed f = failed(worker.step(DecodeBatch{.rows = {{kA, 1}}}));
  EXPECT_EQ(f.code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(f.message, HasSubstr("KV cache is full"));
  EXPECT_THAT(f.message, HasSubstr("sequence 2: " + std::to_string(one) + " bytes for 64 tokens"));
  EXPECT_THAT(f.message, HasSubstr("limit " + std::to_string(2 * one + shape.bytes())));
  // The sequence can only be dropped; then the other one goes on.
  EXPECT_EQ(failed(worker.step(DecodeBatch{.rows = {{kA, 1}}})).code,
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(
      failed(worker.step(ForkSequence{.parent = kA, .child = SequenceId{9}, .sampling = {}})).code,
      ErrorCode::kFailedPrecondition);
  done(worker.step(DropSequences{.sequences = {kA}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), one);
  decode(worker, kB, 1, 3);
}

TEST(Worker, MeasuresWhatItsDeviceAttains) {
  Worker worker = make_worker();
  constexpr std::int64_t kBytes = std::int64_t{4} << 20;
  for (const WorkClock clock : {WorkClock::kWall, WorkClock::kThreadCpu}) {
    const StepDone result = done(worker.step(MeasureRates{clock, kBytes}));
    ASSERT_EQ(result.rates.size(), 1U);
    EXPECT_EQ(result.rates[0].n_threads, 1);
    EXPECT_GT(result.rates[0].rates.float_flops, 0);
    EXPECT_GT(result.rates[0].rates.int8_ops, 0);
    EXPECT_GT(result.rates[0].rates.read_bytes, 0);
  }
  EXPECT_THAT(failed(worker.step(MeasureRates{})).message, HasSubstr("memory to read"));
}

TEST(Worker, RefusesConfigurationsByName) {
  EXPECT_THROW(Worker({.weights = nullptr}), Error);
  ModelSpec narrow = test::tiny_spec();
  narrow.head_dim = 12;
  EXPECT_THROW(Worker({.weights = test::tiny_weights(narrow), .k_type = KvType::kInt4}), Error);
  EXPECT_THROW(Worker({.weights = test::tiny_weights(), .block_size = 24}), Error);
  EXPECT_THROW(Worker({.weights = test::tiny_weights(), .heads = HeadTable(1, 1)}), Error);
}

TEST(Worker, ServesALinkUntilShutdown) {
  LinkPair link = make_in_memory_link();
  std::thread thread([&] {
    Worker worker = make_worker();
    worker.serve(*link.worker);
    link.worker.reset();
  });
  link.coordinator->send(OpenSequence{.sequence = kA, .sampling = {}});
  link.coordinator->send(
      PrefillChunk{.sequence = kA, .tokens = {1, 2, 3}, .after = AfterPrefill::kSample});
  link.coordinator->send(DecodeBatch{.rows = {{kB, 1}}});
  link.coordinator->send(Shutdown{});
  const Deadline deadline = deadline_in(std::chrono::seconds(60));
  done(link.coordinator->receive(deadline));
  EXPECT_EQ(done(link.coordinator->receive(deadline)).picked.size(), 1U);
  EXPECT_EQ(failed(link.coordinator->receive(deadline)).code, ErrorCode::kInvalidArgument);
  done(link.coordinator->receive(deadline));
  thread.join();
}

// A trace was written after Shutdown was answered: nobody waited for it, or heard of a full disk.
TEST(Worker, WhatIsToBeDoneAtShutdownIsDoneBeforeTheAnswer) {
  int n_calls = 0;
  Worker worker({.weights = test::tiny_weights(), .n_threads = 1, .at_shutdown = [&] {
                   if (++n_calls == 2) throw Error(ErrorCode::kIo, "no room for the trace");
                 }});
  done(worker.step(ReportRank{}));
  EXPECT_EQ(n_calls, 0);
  done(worker.step(Shutdown{}));
  const StepFailed answer = failed(worker.step(Shutdown{}));
  EXPECT_EQ(answer.code, ErrorCode::kIo);
  EXPECT_EQ(answer.message, "no room for the trace");
}

TEST(Worker, ServesUntilTheCoordinatorIsGone) {
  LinkPair link = make_in_memory_link();
  std::thread thread([&] { make_worker().serve(*link.worker); });
  link.coordinator.reset();
  thread.join();
}

}  // namespace
}  // namespace longhaul
