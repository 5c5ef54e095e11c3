// Methods that keep the tokens with the highest scores (SnapKV and its kin): which stay, what
// questions then see, and which bytes are free again. One rank; rings are in tests/multirank.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "model/heads/cache_method.h"
#include "model/heads/kept_blocks.h"
#include "model/heads/select_tokens.h"
#include "tests/property/chosen_tokens.h"
#include "tests/property/recovered_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr double kClear = 1e-3;  // scores this far apart are not changed by rounding to float

std::vector<double> log_softmax_of_last(const std::vector<double>& logits,
                                        std::int64_t vocab_size) {
  return log_softmax(std::span(logits).last(static_cast<std::size_t>(vocab_size)));
}

using MakeBudget = KeepBudget (*)(Random& random, KeepWhen when);

struct Case {
  explicit Case(Random& random, std::uint64_t seed, MakeBudget budget = random_budget)
      : spec(random_spec(random)) {
    heads = heads_with(spec, budget(random, KeepWhen::kAfterDocument));
    write_model(folder.path(), {.spec = spec, .seed = seed});
  }
  Worker worker(Random& random) const {
    return Worker(
        {.weights = std::make_shared<const Weights>(Weights::load(ModelFolder(folder.path()))),
         .heads = heads,
         .block_size = 16 * random.integer(1, 3),
         .n_threads = 1});
  }
  ModelSpec spec;
  HeadTable heads;
  TemporaryFolder folder;
};

// Only the heads that chose.
bool same_choice(const HeadTable& heads, const KeptTokens& want, const KeptTokens& got) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    const bool chose = std::holds_alternative<KeepBudget>(heads.at(layer, {0}).keep);
    const auto l = static_cast<std::size_t>(layer.value);
    if (chose && want[l] != got[l]) return false;
  }
  return true;
}

void expect_choice_of_double_precision(MakeBudget budget, int n_rounds) {
  int n_clear = 0;
  for (int round = 0; round < n_rounds; ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const Case c(random, seed, budget);
    const ReferenceModel reference(ModelFolder(c.folder.path()));
    const std::int64_t n = random.integer(2, 150);
    const std::vector<std::int32_t> document = random_tokens(random, n, c.spec.vocab_size);
    double margin = 0;
    const KeptTokens want = kept_by_definition(reference, document, c.heads, margin);
    if (margin < kClear) continue;
    ++n_clear;
    Worker worker = c.worker(random);
    const SequenceId id{1};
    for (const StepCommand& command :
         read_document(id, document, random_chunks(random, n), AfterPrefill::kDocumentEnd)) {
      done(worker.step(command));
    }
    EXPECT_TRUE(same_choice(c.heads, want, held_by(worker, id, c.spec, n_choosers(c.heads))));

    // A question on a fork, in two chunks, and decode.
    std::vector<std::int32_t> text = document;
    const SequenceId fork{2};
    done(worker.step(
        ForkSequence{.parent = id, .child = fork, .sampling = {.n_logprobs = c.spec.vocab_size}}));
    StepDone answer;
    for (const std::int64_t chunk : {random.integer(1, 9), random.integer(1, 30)}) {
      const auto more = random_tokens(random, chunk, c.spec.vocab_size);
      text.insert(text.end(), more.begin(), more.end());
      answer = done(worker.step(
          PrefillChunk{.sequence = fork, .tokens = more, .after = AfterPrefill::kSample}));
    }
    for (int step = 0; step < 3; ++step) {
      text.push_back(answer.picked.at(0).token);
      answer = done(worker.step(DecodeBatch{.rows = {{fork, text.back()}}}));
    }
    std::vector<float> got(static_cast<std::size_t>(c.spec.vocab_size));
    for (const TokenLogprob& t : answer.picked.at(0).top)
      got[static_cast<std::size_t>(t.token)] = t.logprob;
    const auto want_logits = reference.logits(text, masks_after(c.heads, n, want));
    EXPECT_TRUE(close(got, log_softmax_of_last(want_logits, c.spec.vocab_size),
                      logits_tolerance(DType::kF32)));
  }
  EXPECT_GT(n_clear, n_rounds / 5);
}

TEST(ChosenTokens, AreThoseOfDoublePrecisionForAnyChunksAndSoAreTheAnswers) {
  expect_choice_of_double_precision(random_budget, 25 * intensity());
}

TEST(ChosenTokens, OfDistinctKeysAreThoseOfDoublePrecisionAndSoAreTheAnswers) {
  expect_choice_of_double_precision(random_key_budget, 25 * intensity());
}

void expect_no_chunks_or_forks_matter(const KeepBudget& keep) {
  Random random(base_seed() + 5);
  const ModelSpec spec = tiny_spec();
  const HeadTable heads = heads_with(spec, keep);
  Worker worker({.weights = tiny_weights(), .heads = heads, .block_size = 16, .n_threads = 1});
  const std::int64_t n = 1100;
  const auto text = random_tokens(random, n, spec.vocab_size);
  KeptTokens want;
  std::int64_t next = 0;
  for (const std::int64_t chunk_len : {n, std::int64_t{1000}, std::int64_t{64}, std::int64_t{1}}) {
    const SequenceId id{next++};
    for (const StepCommand& command :
         read_document(id, text, equal_chunks(n, chunk_len), AfterPrefill::kSample)) {
      done(worker.step(command));
    }
    const KeptTokens got = held_by(worker, id, spec);
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << "chunks of " << chunk_len;
    done(worker.step(DropSequences{{id}}));
  }
  EXPECT_EQ(want.at(0).at(0).size(), 40U);
  // The last four tokens are the fork's own: the window reaches back into the document.
  const std::span<const std::int32_t> all = text;
  for (const StepCommand& command : read_document(
           SequenceId{90}, all.first(1096), equal_chunks(1096, 300), AfterPrefill::kDocumentEnd)) {
    done(worker.step(command));
  }
  EXPECT_EQ(worker.held_positions(SequenceId{90}, {0}, {0}).size(), 1096U);
  done(
      worker.step(ForkSequence{.parent = SequenceId{90}, .child = SequenceId{91}, .sampling = {}}));
  done(worker.step(PrefillChunk{.sequence = SequenceId{91},
                                .tokens = {text.end() - 4, text.end()},
                                .after = AfterPrefill::kPromptEnd}));
  EXPECT_EQ(held_by(worker, SequenceId{91}, spec), want);
  EXPECT_EQ(worker.held_positions(SequenceId{90}, {0}, {0}).size(), 1096U);
}

TEST(ChosenTokens, DependNeitherOnChunksNorOnForks) {
  KeepBudget keep{.n_tokens = 40, .n_recent = 9, .when = KeepWhen::kAfterPrompt};
  keep.observe = ObserveLast{9};
  keep.pool = {PoolKind::kAverage, 5};
  expect_no_chunks_or_forks_matter(keep);
}

TEST(ChosenTokens, OfDistinctKeysDependNeitherOnChunksNorOnForks) {
  expect_no_chunks_or_forks_matter(
      {.n_tokens = 40, .when = KeepWhen::kAfterPrompt, .observe = ObserveKeys{}});
}

TEST(ChosenTokens, GiveBackTheBytesOfTheFormula) {
  Random random(base_seed() + 6);
  const ModelSpec spec = tiny_spec();
  KeepBudget keep{.n_tokens = 50, .n_recent = 8, .when = KeepWhen::kAfterDocument};
  keep.observe = ObserveLast{8};
  const HeadTable heads = heads_with(spec, keep);
  Worker worker({.weights = tiny_weights(), .heads = heads, .block_size = 16, .n_threads = 1});
  const KvBlockShape shape{.block_size = 16, .head_dim = spec.head_dim};
  const auto n_heads = static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads);
  const auto bytes_of = [&](std::int64_t n_blocks) {
    return static_cast<std::size_t>(n_blocks) * n_heads * shape.bytes();
  };
  const auto text = random_tokens(random, 300, spec.vocab_size);
  auto commands =
      read_document(SequenceId{1}, text, equal_chunks(300, 77), AfterPrefill::kDocumentEnd);
  const StepCommand last = commands.back();
  commands.pop_back();
  for (const StepCommand& command : commands) done(worker.step(command));
  EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(ceil_div(231, 16)));
  done(worker.step(last));
  EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(compacted_blocks(50, 300, 16, 300)));
  for (std::int64_t n = 301; n < 340; ++n) {
    done(worker.step(DecodeBatch{.rows = {{SequenceId{1}, 3}}}));
    EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(compacted_blocks(50, 300, 16, n)));
  }
  done(worker.step(DropSequences{{SequenceId{1}}}));
  EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
}

// What its query heads chose is held once each, and no more than the budget says.
TEST(ChosenTokens, OfQueryHeadsThatChooseByThemselvesTheCacheHoldsTheUnion) {
  Random random(base_seed() + 9);
  const ModelSpec spec = tiny_spec();
  ASSERT_GT(spec.gqa_group(), 1);
  KeepBudget keep{.n_tokens = 60, .n_recent = 8, .when = KeepWhen::kAfterDocument};
  keep.observe = ObserveLast{8};
  keep.group = GroupScore::kEach;
  keep.n_choosers = spec.gqa_group();
  const HeadTable heads = heads_with(spec, keep);
  Worker worker({.weights = tiny_weights(), .heads = heads, .block_size = 16, .n_threads = 1});
  const KvBlockShape shape{.block_size = 16, .head_dim = spec.head_dim};
  const auto text = random_tokens(random, 300, spec.vocab_size);
  for (const StepCommand& command :
       read_document(SequenceId{1}, text, equal_chunks(300, 77), AfterPrefill::kDocumentEnd)) {
    done(worker.step(command));
  }
  const KeptTokens seen = held_by(worker, SequenceId{1}, spec, keep.n_choosers);
  std::size_t n_blocks = 0;
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const auto& tokens : seen.at(static_cast<std::size_t>(layer.value)))
      EXPECT_EQ(tokens.size(), 60U);
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      const auto n =
          static_cast<std::int64_t>(worker.held_positions(SequenceId{1}, layer, kv_head).size());
      EXPECT_GT(n, 60);
      EXPECT_LE(n, budget_of(keep, 300));
      n_blocks += static_cast<std::size_t>(compacted_blocks(n, 300, 16, 300));
    }
  }
  EXPECT_EQ(worker.kv_bytes_in_use(), n_blocks * shape.bytes());
}

// Every method that cuts a text once: the bytes of the formula when it is cut, while answers grow,
// when a fork goes on beside it, and when both are dropped.
struct CutOnce {
  std::string name;
  CacheMethod method;
};

class BytesOfCuts : public testing::TestWithParam<CutOnce> {};

TEST_P(BytesOfCuts, FollowTheFormulaThroughForksAndDrops) {
  constexpr std::int64_t kBlock = 16;
  constexpr std::int64_t kText = 300;
  Random random(base_seed() + 10);
  const ModelSpec spec = tiny_spec();
  const HeadTable heads =
      method_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads),
                   {.all = GetParam().method, .full = std::nullopt});
  Worker worker({.weights = tiny_weights(),
                 .heads = heads,
                 .block_size = kBlock,
                 .token_classes =
                     std::make_shared<const TokenClasses>(random_classes(random, spec.vocab_size)),
                 .n_threads = 1});
  const KvBlockShape shape{.block_size = kBlock, .head_dim = spec.head_dim};
  const auto text = random_tokens(random, kText, spec.vocab_size);
  const SequenceId first{1};
  const SequenceId fork{2};
  for (const AfterPrefill end : {AfterPrefill::kDocumentEnd, AfterPrefill::kPromptEnd}) {
    for (const StepCommand& command : read_document(first, text, equal_chunks(kText, 77), end))
      done(worker.step(command));
    std::vector<std::int64_t> n_held;  // of each head
    for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
      for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads))
        n_held.push_back(std::ssize(worker.held_positions(first, layer, kv_head)));
    }
    const auto& keep = std::get<KeepBudget>(heads.at({0}, {0}).keep);
    const bool is_cut =
        (keep.when == KeepWhen::kAfterDocument) == (end == AfterPrefill::kDocumentEnd);
    const std::int64_t n_all = std::accumulate(n_held.begin(), n_held.end(), std::int64_t{0});
    EXPECT_EQ(n_all < kText * std::ssize(n_held), is_cut);
    // Blocks of a sequence with so many tokens behind the cut, but for the first n_shared of each.
    const auto bytes_of = [&](std::int64_t n_more, std::int64_t n_shared) {
      std::size_t n_blocks = 0;
      for (const std::int64_t n : n_held) {
        const std::int64_t shared = n_shared == 0 ? 0 : (n + n_shared - 1) / kBlock;
        n_blocks +=
            static_cast<std::size_t>(compacted_blocks(n, kText, kBlock, kText + n_more) - shared);
      }
      return n_blocks * shape.bytes();
    };
    const auto decode_one = [&](SequenceId id) {
      done(worker.step(DecodeBatch{.rows = {{id, 3}}}));
    };
    EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(0, 0)) << "as it was cut";
    for (std::int64_t n = 1; n <= 20; ++n) {
      decode_one(first);
      EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(n, 0)) << n << " tokens later";
    }
    done(worker.step(ForkSequence{.parent = first, .child = fork, .sampling = {}}));
    EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(20, 0)) << "a fork that has nothing of its own";
    for (std::int64_t n = 1; n <= 20; ++n) {
      decode_one(fork);
      EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(20, 0) + bytes_of(20 + n, 21));
    }
    done(worker.step(DropSequences{{first}}));
    EXPECT_EQ(worker.kv_bytes_in_use(), bytes_of(40, 0));
    done(worker.step(DropSequences{{fork}}));
    EXPECT_EQ(worker.kv_bytes_in_use(), 0U);
  }
}

ScoredBudget after(KeepWhen when, GroupScore group = GroupScore::kMean) {
  return {.capacity = 60, .window = 9, .kernel = 5, .group = group, .after = when};
}

INSTANTIATE_TEST_SUITE_P(
    Of, BytesOfCuts,
    testing::Values(
        CutOnce{"SnapKv", SnapKvMethod{after(KeepWhen::kAfterDocument)}},
        CutOnce{"SnapKvOfPrompts", SnapKvMethod{after(KeepWhen::kAfterPrompt)}},
        CutOnce{"SnapKvOfEach", SnapKvMethod{after(KeepWhen::kAfterPrompt, GroupScore::kEach)}},
        CutOnce{"PyramidKv", PyramidKvMethod{after(KeepWhen::kAfterDocument), 4}},
        CutOnce{"AdaKv", AdaKvMethod{after(KeepWhen::kAfterDocument), 0.2}},
        CutOnce{"AdaKvOfPrompts", AdaKvMethod{after(KeepWhen::kAfterPrompt), 0.2}},
        CutOnce{"Tova", TovaMethod{.capacity = 60}},
        CutOnce{"TovaOfPrompts", TovaMethod{.capacity = 60, .after = KeepWhen::kAfterPrompt}},
        CutOnce{"KeyDiff", KeyDiffMethod{.capacity = 60}},
        CutOnce{"KeyDiffOfPrompts",
                KeyDiffMethod{.ratio = 0.75, .recent = 9, .after = KeepWhen::kAfterPrompt}},
        CutOnce{"FastGen", FastGenMethod{.threshold = 0.4, .after = KeepWhen::kAfterDocument}},
        CutOnce{"FastGenOfPrompts",
                FastGenMethod{.threshold = 0.4, .after = KeepWhen::kAfterPrompt}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace longhaul::test
