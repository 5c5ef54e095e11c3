// Results depend neither on the number of ranks nor on the plan: random models, plans and scripts
// of commands on rings of in-process ranks against one worker alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "partition/check_plan.h"
#include "tests/multirank/ring_cases.h"
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

// Caches of fewer bits may round to the other side, and so may activations beside weights of
// integers. Sums in another order now and then round a cached value another way.
double tolerance(bool exact, DType weights) {
  if (is_integer(weights) || weights == DType::kF8E4m3) return logits_tolerance(weights).absolute;
  return logits_tolerance(exact ? DType::kF32 : DType::kBf16).absolute;
}

KvType random_type(Random& random, std::int64_t head_dim) {
  if (random.chance(0.6)) return KvType::kF32;
  return kPlainKvTypes[static_cast<std::size_t>(
      random.integer(1, head_dim % 8 == 0 ? std::ssize(kPlainKvTypes) - 1 : 1))];
}

KvType random_of(Random& random, std::span<const KvType> types) {
  return types[static_cast<std::size_t>(random.integer(0, std::ssize(types) - 1))];
}

HistoryChoice random_history(Random& random) {
  const std::int64_t choice = random.integer(0, 2);
  return choice == 0   ? HistoryChoice::kByCost
         : choice == 1 ? HistoryChoice::kKeysTravel
                       : HistoryChoice::kQueriesTravel;
}

// What the random models and roles have besides.
struct Variant {
  DType weights = DType::kF32;
  SinkPositions sink_positions = SinkPositions::kAbsolute;  // of streaming heads
  SinkLogits sink_logits = SinkLogits::kNone;               // kNone: as random models have them
  bool slides = false;       // tokens leave streaming heads' windows several at a time
  bool compensates = false;  // and leave a key for what is gone
  bool in_groups = false;    // caches quantise groups of tokens
};

KvFormat random_format(Random& random, const ModelSpec& spec, const Variant& variant) {
  const bool plain = is_integer(variant.weights) || variant.weights == DType::kF8E4m3;
  KvFormat kv{.k_type = plain ? KvType::kF32 : random_type(random, spec.head_dim),
              .v_type = plain ? KvType::kF32 : random_type(random, spec.head_dim),
              .block_size = 16 * random.integer(1, 2),
              .head_dim = spec.head_dim};
  if (!variant.in_groups) return kv;
  kv.block_size = kKvGroup * random.integer(1, 2);
  const bool both = random.chance(0.5);
  if (both || random.chance(0.5)) kv.k_type = random_of(random, kGroupedKvTypes);
  if (both || !quantises_groups(kv.k_type)) kv.v_type = random_of(random, kGroupedKvTypes);
  return kv;
}

// The same, but streaming heads slide.
HeadTable sliding_heads(Random& random, HeadTable heads, const HeadRoles& roles) {
  const std::int64_t slide = random.integer(1, roles.recent);
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (kind_of(heads.at(layer, kv_head)) != HeadKind::kStreaming) continue;
      heads.set(layer, kv_head,
                {.see = SeeSinkSlide{.sink = roles.sink,
                                     .capacity = roles.sink + roles.recent,
                                     .slide = slide,
                                     .positions = roles.sink_positions}});
    }
  }
  return heads;
}

// One random case on n_ranks ranks. With weights of integers the FFN is wide enough for several
// ranks to have columns: whole groups of activations. With weights of fp8 it has several blocks,
// which ranks cut anywhere.
void expect_equal_results(std::uint64_t seed, std::int64_t n_ranks, const Variant& variant) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << n_ranks << " ranks");
  Random random(seed);
  ModelSpec spec = random_spec(random);
  const DType weight_dtype = variant.weights;
  const bool in_groups = is_integer(weight_dtype);
  if (variant.sink_logits != SinkLogits::kNone) spec.sink_logits = variant.sink_logits;
  const bool is_fp8 = weight_dtype == DType::kF8E4m3;
  if (in_groups) spec.d_ff += random.integer(0, 4) * kInt8Group;
  if (is_fp8) spec.d_ff += random.integer(0, 400);
  if (variant.in_groups) spec.head_dim = kKvGroup * random.integer(1, 2);
  HeadRoles roles = random_roles(random, spec);
  roles.sink_positions = variant.sink_positions;
  HeadTable heads = duo_attention_heads(spec, roles);
  if (variant.slides) heads = sliding_heads(random, heads, roles);
  if (variant.compensates) heads = with_compensation_keys(heads);
  const auto weights = tiny_weights(spec, weight_dtype, seed);
  const KvFormat kv = random_format(random, spec, variant);
  Worker alone({.weights = weights,
                .heads = heads,
                .k_type = kv.k_type,
                .v_type = kv.v_type,
                .block_size = kv.block_size,
                .n_threads = 1});
  const bool exact = kv.k_type == KvType::kF32 && kv.v_type == KvType::kF32;
  std::vector<StepResult> want;
  const std::vector<StepCommand> script = random_script(
      random, alone, exact && weight_dtype == DType::kF32 ? Draws::kSome : Draws::kNone, want,
      variant.compensates ? Guesses::kNone : Guesses::kSome);

  const std::int64_t most_stages = std::min<std::int64_t>({3, n_ranks, spec.n_layers});
  const Plan plan = random_plan(random, spec, heads, n_ranks, random.integer(1, most_stages), kv,
                                in_groups ? kInt8Group : 1);
  const std::vector<std::string> wrong = check_structure(plan, spec, n_ranks);
  ASSERT_TRUE(wrong.empty()) << wrong.front();
  const RingRun got =
      run_on_ring({.weights = weights, .plan = plan, .history = random_history(random)}, script);
  EXPECT_EQ(difference(want, got.results, tolerance(exact, weight_dtype)), "");
}

// Of the whole vocabulary after each token but the last.
std::vector<float> log_probabilities_on_ring(const RingRunConfig& config,
                                             std::span<const std::int32_t> tokens,
                                             std::int64_t chunk_len) {
  constexpr std::int64_t kAll = 1'000'000;
  std::vector<StepCommand> script{OpenSequence{{1}, {}}};
  std::size_t begin = 0;
  for (const std::int64_t n : equal_chunks(std::ssize(tokens), chunk_len)) {
    const auto chunk = tokens.subspan(begin, static_cast<std::size_t>(n));
    begin += chunk.size();
    script.push_back(PrefillChunk{{1}, {chunk.begin(), chunk.end()}, AfterPrefill::kNothing, kAll});
  }
  return scored_log_probabilities(run_on_ring(config, script).results);
}

class RingInvariance : public testing::TestWithParam<std::int64_t> {};

void expect_equal_results_of_all(std::int64_t n_ranks, const Variant& variant) {
  for (int round = 0; round < engine_cases(8); ++round) {
    expect_equal_results(base_seed() * 1000 + static_cast<std::uint64_t>(round) +
                             static_cast<std::uint64_t>(n_ranks) * 100'000,
                         n_ranks, variant);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(RingInvariance, RandomPlansGiveTheResultsOfOneRank) {
  expect_equal_results_of_all(GetParam(), {});
}

TEST_P(RingInvariance, AndSoTheyDoWithInt8Weights) {
  expect_equal_results_of_all(GetParam(), {.weights = DType::kI8});
}

TEST_P(RingInvariance, AndSoTheyDoWithInt4Weights) {
  expect_equal_results_of_all(GetParam(), {.weights = DType::kI4});
}

TEST_P(RingInvariance, AndSoTheyDoWithFp8Weights) {
  expect_equal_results_of_all(GetParam(), {.weights = DType::kF8E4m3});
}

TEST_P(RingInvariance, AndSoTheyDoWithSinksAtPositionsInTheCache) {
  expect_equal_results_of_all(GetParam(), {.sink_positions = SinkPositions::kInCache});
}

TEST_P(RingInvariance, AndSoTheyDoWithLearnedSinkLogits) {
  expect_equal_results_of_all(GetParam(), {.sink_logits = SinkLogits::kLearned});
  expect_equal_results_of_all(GetParam(), {.weights = DType::kI8,
                                           .sink_positions = SinkPositions::kInCache,
                                           .sink_logits = SinkLogits::kLearned});
}

TEST_P(RingInvariance, AndSoTheyDoWithWindowsThatSlideInSteps) {
  expect_equal_results_of_all(GetParam(), {.slides = true});
  expect_equal_results_of_all(GetParam(),
                              {.sink_positions = SinkPositions::kInCache, .slides = true});
}

TEST_P(RingInvariance, AndSoTheyDoWithKeysForWhatIsGone) {
  expect_equal_results_of_all(GetParam(), {.compensates = true});
  expect_equal_results_of_all(GetParam(), {.weights = DType::kI8, .compensates = true});
}

// A text in chunks of one token, odd ones and whole, on any homes, as double precision has it.
TEST_P(RingInvariance, KeysForWhatIsGoneAreThoseOfTheReferenceModel) {
  const std::int64_t n_ranks = GetParam();
  for (int round = 0; round < engine_cases(3); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    HeadRoles roles = random_roles(random, spec);
    roles.recent = random.integer(1, 30);
    const HeadTable heads = with_compensation_keys(duo_attention_heads(spec, roles));
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .seed = seed});
    const ModelFolder model(folder.path());
    const auto weights = std::make_shared<const Weights>(Weights::load(model));
    const ReferenceModel reference(model);
    const std::int64_t n = random.integer(100, 180);
    const std::vector<std::int32_t> tokens = random_tokens(random, n, spec.vocab_size);
    const std::vector<double> logits = reference.logits(tokens, compensated_masks(spec, roles));
    const std::vector<double> want =
        log_softmax(std::span(logits).first(static_cast<std::size_t>((n - 1) * spec.vocab_size)),
                    spec.vocab_size);
    const KvFormat kv{.k_type = KvType::kF32,
                      .v_type = KvType::kF32,
                      .block_size = 16,
                      .head_dim = spec.head_dim};
    for (const std::int64_t chunk_len : {std::int64_t{1}, std::int64_t{37}, n}) {
      const Plan plan = random_plan(random, spec, heads, n_ranks, /*n_stages=*/1, kv);
      const std::vector<float> got =
          log_probabilities_on_ring({.weights = weights, .plan = plan}, tokens, chunk_len);
      EXPECT_TRUE(close(got, want, logits_tolerance(DType::kF32))) << "chunks of " << chunk_len;
    }
  }
}

// Heads that see all, windows from which one token leaves a step, and several, in chunks of one
// token, some, many and all: as one rank that reads the text at once.
TEST_P(RingInvariance, MasksDoNotDependOnChunkLengths) {
  const std::int64_t n_ranks = GetParam();
  constexpr std::int64_t kText = 1050;
  Random random(base_seed() + static_cast<std::uint64_t>(n_ranks));
  const ModelSpec spec = tiny_spec();
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  for (std::size_t i = 0; i < roles.roles.size(); ++i)
    if (i % 3 != 0) roles.roles[i] = HeadRole::kStreaming;
  roles.sink = 5;
  roles.recent = 70;
  HeadTable heads = duo_attention_heads(spec, roles);
  for (const KvHeadId kv_head : {KvHeadId{1}, KvHeadId{2}}) {
    heads.set({1}, kv_head,
              {.see = SeeSinkSlide{
                   .sink = 5, .capacity = 75, .slide = 21, .positions = SinkPositions::kAbsolute}});
  }
  const auto weights = tiny_weights(spec);
  const std::vector<std::int32_t> tokens = random_tokens(random, kText, spec.vocab_size);
  Worker alone({.weights = weights, .heads = heads, .block_size = 16, .n_threads = 1});
  const std::vector<float> want = log_probabilities(alone, tokens, equal_chunks(kText, kText));
  const KvFormat kv{
      .k_type = KvType::kF32, .v_type = KvType::kF32, .block_size = 16, .head_dim = spec.head_dim};
  for (const std::int64_t chunk_len : chunk_lengths_to_try(kText, n_ranks)) {
    const Plan plan = random_plan(random, spec, heads, n_ranks, /*n_stages=*/1, kv);
    EXPECT_TRUE(
        close(log_probabilities_on_ring({.weights = weights, .plan = plan}, tokens, chunk_len),
              std::span<const float>(want), logits_tolerance(DType::kF32)))
        << "chunks of " << chunk_len;
  }
}

TEST_P(RingInvariance, AndSoTheyDoWithCachesOfGroups) {
  expect_equal_results_of_all(GetParam(), {.in_groups = true});
}

// That the variants above are different from a model without them.
TEST(RingVariants, SinkLogitsAndPositionsInTheCacheChangeWhatARankAnswers) {
  Random random(base_seed());
  const ModelSpec spec = tiny_spec();
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  std::ranges::fill(roles.roles, HeadRole::kStreaming);
  roles.sink = 4;
  roles.recent = 20;
  const std::vector<std::int32_t> tokens = random_tokens(random, 80, spec.vocab_size);
  const auto scores = [&](SinkLogits sink_logits, SinkPositions positions) {
    ModelSpec with = spec;
    with.sink_logits = sink_logits;
    roles.sink_positions = positions;
    Worker worker(
        {.weights = tiny_weights(with), .heads = duo_attention_heads(with, roles), .n_threads = 1});
    return log_probabilities(worker, tokens, equal_chunks(80, 33));
  };
  const auto plain = scores(SinkLogits::kNone, SinkPositions::kAbsolute);
  const Tolerance tolerance = logits_tolerance(DType::kF32);
  EXPECT_FALSE(close(scores(SinkLogits::kLearned, SinkPositions::kAbsolute), plain, tolerance));
  EXPECT_FALSE(close(scores(SinkLogits::kNone, SinkPositions::kInCache), plain, tolerance));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingInvariance, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace longhaul::test
