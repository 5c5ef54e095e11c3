// Which tokens are chosen by attention depends neither on the number of ranks nor on homes, shares
// and chunks, and what is answered then does not either.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "cluster/comm/in_process.h"
#include "model/heads/cache_method.h"
#include "partition/check_plan.h"
#include "tests/multirank/ring_cases.h"
#include "tests/property/chosen_tokens.h"
#include "tests/property/recovered_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/paths.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

struct Outcome {
  KeptTokens kept;  // by all ranks
  std::vector<StepDone> results;
};

void add(KeptTokens& all, const KeptTokens& more) {
  all.resize(std::max(all.size(), more.size()));
  for (std::size_t layer = 0; layer < more.size(); ++layer) {
    all[layer].resize(std::max(all[layer].size(), more[layer].size()));
    for (std::size_t head = 0; head < more[layer].size(); ++head) {
      auto& tokens = all[layer][head];
      tokens.insert(tokens.end(), more[layer][head].begin(), more[layer][head].end());
      std::sort(tokens.begin(), tokens.end());
    }
  }
}

Outcome run_alone(const std::shared_ptr<const Weights>& weights, const HeadTable& heads,
                  std::int64_t block_size, std::span<const StepCommand> script,
                  SequenceId looked_at,
                  const std::shared_ptr<const TokenClasses>& classes = nullptr) {
  Worker worker({.weights = weights,
                 .heads = heads,
                 .block_size = block_size,
                 .token_classes = classes,
                 .n_threads = 1});
  Outcome run;
  for (const StepCommand& command : script) run.results.push_back(done(worker.step(command)));
  run.kept = held_by(worker, looked_at, weights->spec(), n_choosers(heads));
  return run;
}

Outcome run_on_ranks(const std::shared_ptr<const Weights>& weights, const Plan& plan,
                     std::int64_t n_ranks, std::span<const StepCommand> script,
                     SequenceId looked_at,
                     const std::shared_ptr<const TokenClasses>& classes = nullptr) {
  const auto shared_plan = std::make_shared<const Plan>(plan);
  const auto cluster = std::make_shared<const ClusterSpec>(equal_cluster(n_ranks, 1 << 30));
  Outcome run;
  run.results.resize(script.size());
  std::mutex mutex;
  run_in_process(static_cast<int>(n_ranks), [&](Communicator& comm) {
    Worker worker({.weights = weights,
                   .token_classes = classes,
                   .n_threads = 1,
                   .place = RingPlace{.plan = shared_plan, .cluster = cluster, .comm = &comm}});
    for (std::size_t i = 0; i < script.size(); ++i) {
      StepDone answer = done(worker.step(script[i]));
      const std::lock_guard lock(mutex);
      if (!answer.picked.empty()) run.results[i].picked = std::move(answer.picked);
      if (!answer.scored.empty()) run.results[i].scored = std::move(answer.scored);
    }
    const KeptTokens held =
        held_by(worker, looked_at, weights->spec(), n_choosers(shared_plan->heads));
    const std::lock_guard lock(mutex);
    add(run.kept, held);
  });
  return run;
}

class ChosenTokensOnRings : public testing::TestWithParam<std::int64_t> {};

// A document, two forks with a question each, and answers in one batch.
struct Dialogue {
  std::vector<StepCommand> script;
  std::vector<std::int32_t> looked_at_text;  // that was whole when its tokens were chosen
  SequenceId looked_at{10};
  std::vector<std::vector<std::int32_t>> prompts = {};  // of both forks
};
constexpr std::int32_t kFirstAnswer = 2;
constexpr std::int32_t kAnswersEnd = 12;  // tokens of both answers: 2, 3, ...

Dialogue random_dialogue(Random& random, const ModelSpec& spec, KeepWhen when) {
  const SequenceId document{10};
  const std::int64_t n = random.integer(1, 160);
  const auto text = random_tokens(random, n, spec.vocab_size);
  Dialogue dialogue{
      .script = read_document(document, text, random_chunks(random, n), AfterPrefill::kDocumentEnd),
      .looked_at_text = text};
  std::vector<DecodeBatch::Row> rows;
  for (std::int64_t i = 1; i <= 2; ++i) {
    const SequenceId fork{document.value + i};
    const auto question = random_tokens(random, random.integer(1, 30), spec.vocab_size);
    dialogue.script.push_back(
        ForkSequence{.parent = document, .child = fork, .sampling = {.n_logprobs = 3}});
    dialogue.script.push_back(
        PrefillChunk{.sequence = fork, .tokens = question, .after = AfterPrefill::kSample});
    rows.push_back({fork, 1});
    auto& prompt = dialogue.prompts.emplace_back(text);
    prompt.insert(prompt.end(), question.begin(), question.end());
    if (i == 1 || when == KeepWhen::kAfterDocument) continue;
    dialogue.looked_at = fork;
    dialogue.looked_at_text.insert(dialogue.looked_at_text.end(), question.begin(), question.end());
  }
  for (std::int32_t token = kFirstAnswer; token < kAnswersEnd; ++token) {
    for (auto& row : rows) row.token = token;
    dialogue.script.push_back(DecodeBatch{rows});
  }
  return dialogue;
}

// A model with heads, and what is asked of it.
struct RingCase {
  std::shared_ptr<const Weights> weights;
  HeadTable heads;
  Dialogue dialogue;
  bool is_clear = true;  // no choice is so close that the order of sums may decide it
  std::shared_ptr<const TokenClasses> classes = nullptr;
  std::int64_t block_size = 16;
  bool chooses_what_stays = true;  // and not only what is read
};

// Whether the ranks of a random plan keep and answer what one rank does.
void expect_those_of_one_rank(const RingCase& c, Random& random, std::int64_t n_ranks) {
  const ModelSpec& spec = c.weights->spec();
  const KvFormat kv{.k_type = KvType::kF32,
                    .v_type = KvType::kF32,
                    .block_size = c.block_size,
                    .head_dim = spec.head_dim};
  const SequenceId looked_at = c.dialogue.looked_at;
  const Outcome want =
      run_alone(c.weights, c.heads, kv.block_size, c.dialogue.script, looked_at, c.classes);
  const std::int64_t most_stages = std::min<std::int64_t>({2, n_ranks, spec.n_layers});
  const Plan plan = random_plan(random, spec, c.heads, n_ranks, random.integer(1, most_stages), kv);
  ASSERT_TRUE(check_structure(plan, spec, n_ranks).empty());
  const Outcome got =
      run_on_ranks(c.weights, plan, n_ranks, c.dialogue.script, looked_at, c.classes);
  if (c.chooses_what_stays) {
    EXPECT_EQ(got.kept, want.kept);
  }
  const std::vector<StepResult> want_results(want.results.begin(), want.results.end());
  EXPECT_EQ(difference(want_results, got.results, logits_tolerance(DType::kF32).absolute), "");
}

// Tries random cases, up to the first that fails; gives how many were clear.
template <typename MakeCase>
int try_on_ranks(std::int64_t n_ranks, int n_rounds, const MakeCase& make_case) {
  int n_clear = 0;
  for (int round = 0; round < n_rounds && !testing::Test::HasFailure(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round) +
                               static_cast<std::uint64_t>(n_ranks) * 100'000;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const RingCase c = make_case(random, seed, round);
    if (!c.is_clear) continue;
    ++n_clear;
    expect_those_of_one_rank(c, random, n_ranks);
  }
  return n_clear;
}

// The same weights for workers and for the definition in double precision.
struct ModelOnDisk {
  ModelOnDisk(const ModelSpec& spec, std::uint64_t seed) {
    write_model(folder.path(), {.spec = spec, .seed = seed});
  }
  ReferenceModel reference() const { return ReferenceModel(ModelFolder(folder.path())); }
  std::shared_ptr<const Weights> weights() const {
    return std::make_shared<const Weights>(Weights::load(ModelFolder(folder.path())));
  }
  TemporaryFolder folder;
};

// Whether no choice is closer than that in either fork's prompt with its answer and `more`;
// margin_of(text, number of the prompt's tokens).
template <typename MarginOf>
bool are_clear(const Dialogue& dialogue, std::span<const std::int32_t> more, double clear,
               const MarginOf& margin_of) {
  return std::ranges::all_of(dialogue.prompts, [&](const auto& prompt) {
    std::vector<std::int32_t> text = prompt;
    for (std::int32_t token = kFirstAnswer; token < kAnswersEnd; ++token) text.push_back(token);
    text.insert(text.end(), more.begin(), more.end());
    return margin_of(text, static_cast<std::int64_t>(prompt.size())) >= clear;
  });
}

void expect_choice_of_one_rank(std::int64_t n_ranks,
                               KeepBudget (*budget)(Random& random, KeepWhen when)) {
  constexpr double kClear = 1e-4;  // closer scores may be changed by the order of sums
  const auto make_case = [&](Random& random, std::uint64_t seed, int /*round*/) {
    const ModelSpec spec = random_spec(random);
    const KeepWhen when = random.chance(0.5) ? KeepWhen::kAfterDocument : KeepWhen::kAfterPrompt;
    const ModelOnDisk model(spec, seed);
    RingCase c{.weights = model.weights(),
               .heads = heads_with(spec, budget(random, when)),
               .dialogue = random_dialogue(random, spec, when),
               .block_size = 16 * random.integer(1, 2)};
    double margin = 0;
    kept_by_definition(model.reference(), c.dialogue.looked_at_text, c.heads, margin);
    c.is_clear = margin >= kClear;
    return c;
  };
  EXPECT_GE(try_on_ranks(n_ranks, engine_cases(8), make_case), engine_cases(2));
}

TEST_P(ChosenTokensOnRings, AreThoseOfOneRank) {
  expect_choice_of_one_rank(GetParam(), random_budget);
}

TEST_P(ChosenTokensOnRings, WithDistinctKeysAreThoseOfOneRank) {
  expect_choice_of_one_rank(GetParam(), random_key_budget);
}

// SnapKV's choice in chunks of one token, some, many and all, on lopsided homes: one rank's of the
// whole text at once.
TEST_P(ChosenTokensOnRings, AreThoseOfOneRankInChunksOfAnyLength) {
  const std::int64_t n_ranks = GetParam();
  Random random(base_seed() + static_cast<std::uint64_t>(n_ranks));
  const ModelSpec spec = tiny_spec();
  const auto weights = tiny_weights(spec);
  const KvFormat kv{
      .k_type = KvType::kF32, .v_type = KvType::kF32, .block_size = 16, .head_dim = spec.head_dim};
  const SequenceId id{1};
  constexpr std::int64_t kText = 1100;
  Random always_the_same(7);  // scores that are close would be decided by rounding
  const auto text = random_tokens(always_the_same, kText, spec.vocab_size);
  for (const KeepWhen when : {KeepWhen::kAfterDocument, KeepWhen::kAfterPrompt}) {
    SnapKvMethod snapkv{{.capacity = 50, .window = 9, .kernel = 5}};
    snapkv.after = when;
    const HeadTable heads =
        method_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads),
                     {.all = snapkv, .full = std::nullopt});
    const auto script = [&](std::int64_t chunk_len) {
      const bool is_document = when == KeepWhen::kAfterDocument;
      auto commands =
          read_document(id, text, equal_chunks(kText, chunk_len),
                        is_document ? AfterPrefill::kDocumentEnd : AfterPrefill::kPromptEnd);
      commands.push_back(PrefillChunk{.sequence = id, .tokens = {5, 6}, .score_logprobs = 3});
      return commands;
    };
    const Outcome want = run_alone(weights, heads, kv.block_size, script(kText), id);
    EXPECT_EQ(want.kept.at(0).at(0).size(), 52U);
    for (const std::int64_t chunk_len : chunk_lengths_to_try(kText, n_ranks)) {
      if (chunk_len == 1 && when == KeepWhen::kAfterPrompt) continue;  // takes long
      SCOPED_TRACE(testing::Message() << "chunks of " << chunk_len);
      const Plan plan = random_plan(random, spec, heads, n_ranks, 1, kv);
      const Outcome got = run_on_ranks(weights, plan, n_ranks, script(chunk_len), id);
      EXPECT_EQ(got.kept, want.kept);
      EXPECT_EQ(difference({want.results.back()}, {got.results.back()},
                           logits_tolerance(DType::kF32).absolute),
                "");
    }
  }
}

constexpr double kClearSum = 2e-5;  // of sums of attention, and of decisions to merge

// Tokens dropped at every step, wherever they and the newest ones are at home.
TEST_P(ChosenTokensOnRings, TokensDroppedAtEveryStepAreThoseOfOneRank) {
  const auto make_case = [](Random& random, std::uint64_t seed, int /*round*/) {
    const ModelSpec spec = random_spec(random);
    const ModelOnDisk model(spec, seed);
    RingCase c{.weights = model.weights(),
               .heads = heads_with(spec, random_eviction(random)),
               .dialogue = random_dialogue(random, spec, KeepWhen::kAfterToken),
               .block_size = 16 * random.integer(1, 2)};
    const ReferenceModel reference = model.reference();
    c.is_clear = are_clear(c.dialogue, {}, kClearSum, [&](const auto& text, std::int64_t n_prompt) {
      return evict_by_definition(reference, text, n_prompt, c.heads).margin;
    });
    return c;
  };
  EXPECT_GE(try_on_ranks(GetParam(), engine_cases(3), make_case), 1);
}

// Tokens kept by the recipe that recovers enough of a head's attention (FastGen).
TEST_P(ChosenTokensOnRings, RecipesAndWhatTheyKeepAreThoseOfOneRank) {
  const auto make_case = [](Random& random, std::uint64_t seed, int round) {
    const ModelSpec spec = random_spec(random);
    const KeepWhen when = round % 2 == 0 ? KeepWhen::kAfterToken : KeepWhen::kAfterDocument;
    const ModelOnDisk model(spec, seed);
    RingCase c{
        .weights = model.weights(),
        .heads = heads_with(spec, random_recovery(random, when)),
        .dialogue = random_dialogue(random, spec, when),
        .classes = std::make_shared<const TokenClasses>(random_classes(random, spec.vocab_size)),
        .block_size = 16 * random.integer(1, 2)};
    const ReferenceModel reference = model.reference();
    c.is_clear = are_clear(c.dialogue, {}, kClearSum, [&](const auto& text, std::int64_t n_prompt) {
      const std::int64_t n_whole =
          when == KeepWhen::kAfterDocument ? std::ssize(c.dialogue.looked_at_text) : n_prompt;
      return recover_by_definition(reference, text, n_whole, c.heads, *c.classes).margin;
    });
    return c;
  };
  EXPECT_GE(try_on_ranks(GetParam(), engine_cases(4), make_case), 1);
}

// Pages chosen at every step of answers, streaming heads beside them or not.
TEST_P(ChosenTokensOnRings, AnswersOfChosenPagesAreThoseOfOneRank) {
  try_on_ranks(GetParam(), engine_cases(5), [](Random& random, std::uint64_t seed, int /*round*/) {
    const ModelSpec spec = random_spec(random);
    const std::int64_t block_size = 16 * random.integer(1, 2);
    const std::int64_t page = block_size >> random.integer(0, 3);
    HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
    roles.sink = 2;
    roles.recent = 20;
    for (HeadRole& role : roles.roles) {
      if (random.chance(0.3)) role = HeadRole::kStreaming;
    }
    const QuestMethod quest{.budget = page * random.integer(1, 4), .page = page, .dense = 0};
    return RingCase{
        .weights = std::make_shared<const Weights>(Weights::synthetic(spec, DType::kF32, seed)),
        .heads = method_heads(spec, roles, {.all = std::nullopt, .full = quest}),
        .dialogue = random_dialogue(random, spec, KeepWhen::kAfterDocument),
        .block_size = block_size,
        .chooses_what_stays = false};
  });
}

// Merged tokens (DMC): the same slots, wherever they are at home, and the same answers; also of a
// text that goes on behind its answer.
TEST_P(ChosenTokensOnRings, MergedTokensAreThoseOfOneRank) {
  const auto make_case = [](Random& random, std::uint64_t seed, int /*round*/) {
    const ModelSpec spec = merging_spec(random);
    const ModelOnDisk model(spec, seed);
    RingCase c{.weights = model.weights(),
               .heads = dense_heads(spec),
               .dialogue = random_dialogue(random, spec, KeepWhen::kAfterPrompt),
               .block_size = 16 * random.integer(1, 2)};
    const auto more = random_tokens(random, random.integer(1, 40), spec.vocab_size);
    c.dialogue.script.push_back(PrefillChunk{
        .sequence = c.dialogue.looked_at, .tokens = more, .after = AfterPrefill::kSample});
    const ReferenceModel reference = model.reference();
    c.is_clear = are_clear(c.dialogue, more, kClearSum, [&](const auto& text, std::int64_t) {
      ReferenceModel::Merged merged;
      reference.logits(text, merged);
      return merged.margin;
    });
    return c;
  };
  EXPECT_GE(try_on_ranks(GetParam(), engine_cases(6), make_case), engine_cases(2));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ChosenTokensOnRings, testing::Values(1, 2, 3, 5, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace longhaul::test
