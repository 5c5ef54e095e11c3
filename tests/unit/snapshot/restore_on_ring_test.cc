// What was saved on some ranks comes back on others: the same bits whatever lies between, and the
// same answers as if the document had been read there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "model/heads/cache_method.h"
#include "tests/multirank/ring_cases.h"
#include "tests/property/chosen_tokens.h"
#include "tests/property/recovered_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/paths.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

class RestoreOnRing : public testing::TestWithParam<std::int64_t> {};

// A random model, roles and document, and plans for any number of ranks.
class RandomDocument {
 public:
  RandomDocument(std::uint64_t seed, KvType k_type, KvType v_type) : random_(seed) {
    spec_ = random_spec(random_);
    in_groups_ = quantises_groups(k_type) || quantises_groups(v_type);
    // Of whole words of every type, and of whole groups.
    spec_.head_dim = in_groups_ ? 32 * random_.integer(1, 2) : 8 * random_.integer(1, 3);
    HeadRoles roles = random_roles(random_, spec_);
    if (random_.chance(0.3) && !in_groups_) roles.sink_positions = SinkPositions::kInCache;
    heads_ = duo_attention_heads(spec_, roles);
    weights_ = tiny_weights(spec_, DType::kF32, seed);
    kv_ = {.k_type = k_type, .v_type = v_type, .block_size = 16, .head_dim = spec_.head_dim};
    tokens_ = random_tokens(random_, random_.integer(30, 300), spec_.vocab_size);
    more_ = random_tokens(random_, random_.integer(1, 60), spec_.vocab_size);
  }
  // Blocks of groups are neither cut nor joined, so these have one size.
  Plan plan(std::int64_t n_ranks, std::int64_t block_size, bool reproducible = false) {
    KvFormat kv = kv_;
    kv.block_size = in_groups_ ? 32 : block_size;
    const std::int64_t most_stages = std::min<std::int64_t>({3, n_ranks, spec_.n_layers});
    return random_plan(random_, spec_, heads_, n_ranks, random_.integer(1, most_stages), kv,
                       /*ffn_unit=*/1, reproducible);
  }
  RingRun run(const Plan& plan, const std::vector<StepCommand>& script) const {
    return run_on_ring({.weights = weights_, .plan = plan, .token_classes = classes_}, script);
  }
  std::vector<StepCommand> read() const {
    const auto half = static_cast<std::ptrdiff_t>(tokens_.size() / 2);
    return {OpenSequence{{1}, {}},
            PrefillChunk{.sequence = {1}, .tokens = {tokens_.begin(), tokens_.begin() + half}},
            PrefillChunk{.sequence = {1},
                         .tokens = {tokens_.begin() + half, tokens_.end()},
                         .after = AfterPrefill::kDocumentEnd}};
  }
  // All heads choose tokens by attention, of one kind of method or another; of later kinds they
  // choose pages for each query, or keep a key for what has left their windows.
  static constexpr std::int64_t kKinds = 10;
  bool choose(std::int64_t kind) {
    if (kind == 4) {
      HeadRoles roles = random_roles(random_, spec_);
      roles.roles.front() = HeadRole::kStreaming;
      heads_ = with_compensation_keys(duo_attention_heads(spec_, roles));
      return false;
    }
    if (kind == 3) {
      const QuestMethod quest{.budget = 16 * random_.integer(2, 5),
                              .page = 16,
                              .dense = random_.integer(0, spec_.n_layers - 1)};
      heads_ = method_heads(spec_, HeadRoles::all_retrieval(spec_.n_layers, spec_.n_kv_heads),
                            {.all = quest, .full = std::nullopt});
      return false;
    }
    const bool of_documents = kind == 0 || kind == 5;
    if (kind == 9) {  // tokens merge into slots
      spec_ = merging_spec(random_);
      spec_.head_dim = 8 * random_.integer(1, 3);
      heads_ = dense_heads(spec_);
      weights_ = tiny_weights(spec_, DType::kF32, random_.engine()());
      kv_.head_dim = spec_.head_dim;
      tokens_ = random_tokens(random_, random_.integer(30, 300), spec_.vocab_size);
      more_ = random_tokens(random_, random_.integer(1, 60), spec_.vocab_size);
      return false;
    }
    if (kind > 5) {  // recipes, of documents, of prompts or at every token
      constexpr KeepWhen kTimes[] = {KeepWhen::kAfterDocument, KeepWhen::kAfterPrompt,
                                     KeepWhen::kAfterToken};
      classes_ = std::make_shared<const TokenClasses>(random_classes(random_, spec_.vocab_size));
      heads_ = heads_with(spec_, random_recovery(random_, kTimes[kind - 6]));
      return kind == 6 && heads_.count_chosen() > 0;
    }
    KeepBudget keep = of_documents ? random_budget(random_, KeepWhen::kAfterDocument)
                      : kind == 1  ? random_eviction(random_)
                                   : random_budget(random_, KeepWhen::kAfterPrompt);
    if (kind == 5) {  // each query head chooses for itself
      keep.group = GroupScore::kEach;
      if (keep.select == SelectAmong::kLayerAlike) keep.select = SelectAmong::kHead;
    }
    heads_ = heads_with(spec_, keep);
    return of_documents && heads_.count_chosen() > 0;  // its documents are cut
  }
  SaveSequence save(const fs::path& folder) const {
    return {{1}, folder.string(), "doc", tokens_, {{"content_id", "1"}}};
  }
  // Once its first half is read.
  SaveSequence save_half(const fs::path& folder) const {
    SaveSequence save = this->save(folder);
    save.tokens.resize(tokens_.size() / 2);
    save.facts = {{"content_id", "0"}};
    return save;
  }
  RestoreSequence restore_half(const fs::path& folder) const {
    RestoreSequence restore = this->restore(folder);
    restore.content_id = "0";
    restore.n_tokens /= 2;
    return restore;
  }
  RestoreSequence restore(const fs::path& folder) const {
    return {.sequence = {1},
            .folder = folder.string(),
            .name = "doc",
            .content_id = "1",
            .n_tokens = static_cast<std::int64_t>(tokens_.size())};
  }
  // A question on it, scored and answered; then more of the document itself.
  std::vector<StepCommand> ask() const {
    const SamplingParams sampling{.n_logprobs = spec_.vocab_size};
    return {
        ForkSequence{{1}, {2}, sampling},
        PrefillChunk{
            .sequence = {2}, .tokens = more_, .after = AfterPrefill::kSample, .score_logprobs = 3},
        DecodeBatch{.rows = {{.sequence = {2}, .token = 5}}},
        DecodeBatch{.rows = {{.sequence = {2}, .token = 7}}},
        PrefillChunk{.sequence = {1}, .tokens = more_, .score_logprobs = 3}};
  }
  // Of one rank that reads it and is asked; before them what restoring gives.
  std::vector<StepResult> answers_alone(bool reproducible = false) const {
    Worker alone({.weights = weights_,
                  .heads = heads_,
                  .k_type = kv_.k_type,
                  .v_type = kv_.v_type,
                  .block_size = in_groups_ ? 32 : 16,
                  .token_classes = classes_,
                  .n_threads = 1,
                  .reproducible = reproducible});
    for (const StepCommand& command : read()) done(alone.step(command));
    std::vector<StepResult> answers = {StepDone{}};
    for (const StepCommand& command : ask()) answers.push_back(alone.step(command));
    return answers;
  }
  // What its logits may differ by from those.
  double tolerance() const {
    const bool is_exact = kv_.k_type == KvType::kF32 && kv_.v_type == KvType::kF32;
    return logits_tolerance(is_exact ? DType::kF32 : DType::kBf16).absolute;
  }
  bool is_in_groups() const { return in_groups_; }
  bool merges_tokens() const { return heads_.merges_tokens(); }
  Random& random() { return random_; }
  void set_types(KvType k_type, KvType v_type) { kv_.k_type = k_type, kv_.v_type = v_type; }

 private:
  Random random_;
  ModelSpec spec_;
  HeadTable heads_;
  std::shared_ptr<const Weights> weights_;
  KvFormat kv_;
  std::shared_ptr<const TokenClasses> classes_;
  bool in_groups_ = false;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> more_;
};

template <typename... Rest>
std::vector<StepCommand> script_of(std::vector<StepCommand> begin, Rest... rest) {
  (begin.push_back(std::move(rest)), ...);
  return begin;
}

std::vector<WrittenFile> parts_in(const fs::path& folder) {
  return read_saved_header(folder / "doc.h5").parts;
}

std::uint64_t seed_of(std::int64_t n_ranks, std::int64_t round) {
  return base_seed() * 1000 + static_cast<std::uint64_t>(100 * n_ranks + round);
}

// Every pair of types that a round is for.
std::pair<KvType, KvType> types_of_tokens(std::int64_t round) {
  constexpr std::int64_t kTypes = std::ssize(kPlainKvTypes);
  return {kPlainKvTypes[static_cast<std::size_t>(round % kTypes)],
          kPlainKvTypes[static_cast<std::size_t>((round + round / kTypes) % kTypes)]};
}
// And of those that quantise groups of tokens, too.
constexpr std::int64_t kRounds = 13;
std::pair<KvType, KvType> types_of(std::int64_t round) {
  switch (round % kRounds) {
    case 4:
      return {KvType::kKivi4, KvType::kKivi2};
    case 5:
      return {KvType::kKivi2, KvType::kBf16};
    case 6:
      return {KvType::kInt8, KvType::kKivi4};
    default:
      return types_of_tokens(round / kRounds * 4 + round % kRounds);
  }
}
// Which kind of method a round is for; none: heads of a profile.
std::optional<std::int64_t> method_of(std::int64_t round) {
  switch (round % kRounds) {
    case 1:
    case 2:
    case 3:
      return round % kRounds - 1;
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
      return round % kRounds - 3;
    default:
      return std::nullopt;
  }
}

TEST_P(RestoreOnRing, BitsComeBackWhateverRanksAndBlocksLieBetween) {
  for (int round = 0; round < kRounds * intensity(); ++round) {
    const auto seed = seed_of(GetParam(), round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDocument document(seed, types_of(round).first, types_of(round).second);
    if (const auto kind = method_of(round)) document.choose(*kind);
    const TemporaryFolder folder;
    const Plan here = document.plan(GetParam(), 16);
    document.run(here, script_of(document.read(), document.save(folder.path() / "first")));
    for (const std::int64_t n_ranks : {1, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "over " << n_ranks << " ranks");
      const Plan there = document.plan(n_ranks, 16 * document.random().integer(1, 3));
      const fs::path between = folder.path() / fmt::format("between {}", n_ranks);
      const fs::path last = folder.path() / fmt::format("last {}", n_ranks);
      document.run(there, {document.restore(folder.path() / "first"), document.save(between)});
      document.run(here, {document.restore(between), document.save(last)});
      EXPECT_EQ(parts_in(last), parts_in(folder.path() / "first")) << "checksums of the parts";
    }
  }
}

TEST_P(RestoreOnRing, AnswersAreThoseOfARankThatReadTheDocument) {
  for (int round = 0; round < 4 * intensity(); ++round) {
    const auto seed = seed_of(GetParam(), 50 + round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDocument document(seed, types_of_tokens(round).first, types_of_tokens(round).second);
    const TemporaryFolder folder;
    document.run(document.plan(GetParam(), 16),
                 script_of(document.read(), document.save(folder.path())));
    const std::vector<StepResult> want = document.answers_alone();
    for (const std::int64_t n_ranks : {1, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "on " << n_ranks << " ranks");
      std::vector<StepCommand> script = document.ask();
      script.insert(script.begin(), document.restore(folder.path()));
      const Plan there = document.plan(n_ranks, 16 * document.random().integer(1, 3));
      EXPECT_EQ(difference(want, document.run(there, script).results, document.tolerance()), "");
    }
  }
}

// With --reproducible to the bit, also where codes of few bits amplify a float's rounding: groups
// of tokens, and keys for what has left windows in every other type.
TEST_P(RestoreOnRing, ReproducibleAnswersHaveTheBitsOfARankThatReadTheDocument) {
  for (int round = 0; round < 7 * intensity(); ++round) {
    const auto seed = seed_of(GetParam(), 500 + round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const bool in_groups = round % 7 >= 4;
    const auto [k_type, v_type] = in_groups ? types_of(round % 7) : types_of_tokens(round);
    RandomDocument document(seed, k_type, v_type);
    if (!in_groups) document.choose(4);
    const TemporaryFolder folder;
    document.run(document.plan(GetParam(), 16, /*reproducible=*/true),
                 script_of(document.read(), document.save(folder.path())));
    const std::vector<StepResult> want = document.answers_alone(/*reproducible=*/true);
    for (const std::int64_t n_ranks : {1, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "on " << n_ranks << " ranks");
      std::vector<StepCommand> script = document.ask();
      script.insert(script.begin(), document.restore(folder.path()));
      const Plan there = document.plan(n_ranks, 16, /*reproducible=*/true);
      EXPECT_EQ(difference(want, document.run(there, script).results, 0), "");
    }
  }
}

TEST_P(RestoreOnRing, ConvertedRowsThatLoseNothingComeBackToo) {
  const auto seed = seed_of(GetParam(), 99);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomDocument document(seed, KvType::kBf16, KvType::kBf16);
  const TemporaryFolder folder;
  const Plan here = document.plan(GetParam(), 16);
  document.run(here, script_of(document.read(), document.save(folder.path() / "first")));
  document.set_types(KvType::kF32, KvType::kF32);
  RestoreSequence restore = document.restore(folder.path() / "first");
  restore.converts = true;
  document.run(document.plan(3, 32), {restore, document.save(folder.path() / "f32")});
  restore = document.restore(folder.path() / "f32");
  restore.converts = true;
  document.run(here, {restore, document.save(folder.path() / "last")});
  EXPECT_EQ(parts_in(folder.path() / "last"), parts_in(folder.path() / "first"));
}

// Of files and of runs without files on the same plan.
TEST_P(RestoreOnRing, WhatFollowsIsBitForBitWhatItWouldHaveBeen) {
  for (int round = 0; round < kRounds * intensity(); ++round) {
    const auto seed = seed_of(GetParam(), 300 + round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDocument document(seed, types_of(round).first, types_of(round).second);
    if (const auto kind = method_of(round)) document.choose(*kind);
    const Plan plan = document.plan(GetParam(), 16);
    const TemporaryFolder folder;
    document.run(plan, script_of(document.read(), document.save(folder.path())));
    std::vector<StepCommand> script = document.read();
    const std::vector<StepCommand> asked = document.ask();
    script.insert(script.end(), asked.begin(), asked.end());
    const std::vector<StepDone> all = document.run(plan, script).results;
    std::vector<StepResult> want = {StepDone{}};
    want.insert(want.end(), all.end() - static_cast<std::ptrdiff_t>(asked.size()), all.end());
    script = asked;
    script.insert(script.begin(), document.restore(folder.path()));
    EXPECT_EQ(difference(want, document.run(plan, script).results, 0), "");
  }
}

TEST_P(RestoreOnRing, ChosenTokensComeBackWithWhatTheirMethodsGoOnWith) {
  for (int kind = 0; kind < RandomDocument::kKinds; ++kind) {
    const auto seed = seed_of(GetParam(), 400 + kind);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDocument document(seed, KvType::kF32, KvType::kF32);
    const bool is_cut = document.choose(kind);
    const TemporaryFolder folder;
    document.run(document.plan(GetParam(), 16),
                 script_of(document.read(), document.save(folder.path())));
    const SavedHeader header = read_saved_header(folder.path() / "doc.h5");
    EXPECT_EQ(header.is_cut, is_cut);
    const std::vector<StepResult> want = document.answers_alone();
    for (const std::int64_t n_ranks : {1, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "on " << n_ranks << " ranks");
      std::vector<StepCommand> script = document.ask();
      script.insert(script.begin(), document.restore(folder.path()));
      const Plan there = document.plan(n_ranks, 16 * document.random().integer(1, 3));
      EXPECT_EQ(difference(want, document.run(there, script).results, document.tolerance()), "");
    }
  }
}

// A document whose second half other ranks read, and about which others still are asked.
struct PlansOfHalves {
  Plan first;
  Plan second;
  Plan asked;
};
// With one save after each half, of everything.
std::vector<StepDone> answers_of_saves(const RandomDocument& document, const PlansOfHalves& plans,
                                       const fs::path& folder) {
  const std::vector<StepCommand> read = document.read();
  document.run(plans.first, {read[0], read[1], document.save_half(folder / "half")});
  document.run(plans.second,
               {document.restore_half(folder / "half"), read[2], document.save(folder / "whole")});
  std::vector<StepCommand> script = document.ask();
  script.insert(script.begin(), document.restore(folder / "whole"));
  return document.run(plans.asked, script).results;
}
// With files that go on: the second save writes only what came since, and both are written beside
// what is read next, which is not in them.
std::vector<StepDone> answers_of_files_that_go_on(const RandomDocument& document,
                                                  const PlansOfHalves& plans,
                                                  const fs::path& folder) {
  const std::vector<StepCommand> read = document.read();
  SaveSequence half = document.save_half(folder);
  half.goes_on = true;
  SaveSequence whole = document.save(folder);
  whole.goes_on = true;
  document.run(plans.first, {read[0], read[1], half, read[2], FinishSave{}});
  const SavedHeader begun = read_saved_header(folder / "doc.h5");
  document.run(plans.second, {document.restore_half(folder), read[2], whole, document.ask().back(),
                              FinishSave{}});
  const SavedHeader header = read_saved_header(folder / "doc.h5");
  EXPECT_EQ(header.generation, 1);
  // Where tokens are chosen or merge, what was saved changes, and is written anew.
  const bool is_anew = header.is_cut || document.merges_tokens();
  EXPECT_EQ(header.parts.size(), (is_anew ? 0 : begun.parts.size()) + 3);
  if (!is_anew) {
    EXPECT_GT(header.n_bytes(), begun.n_bytes());
  }
  std::vector<StepCommand> script = document.ask();
  script.insert(script.begin(), document.restore(folder));
  return document.run(plans.asked, script).results;
}

TEST_P(RestoreOnRing, FilesThatGoOnHoldWhatOneSaveHolds) {
  for (int round = 0; round < kRounds * intensity(); ++round) {
    const auto seed = seed_of(GetParam(), 200 + round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDocument document(seed, types_of(round).first, types_of(round).second);
    const auto kind = method_of(round);
    if (kind) document.choose(*kind);
    const PlansOfHalves plans = {document.plan(GetParam(), 16), document.plan(3, 16),
                                 document.plan(2, 32)};
    const TemporaryFolder folder;
    const auto got = answers_of_files_that_go_on(document, plans, folder.path() / "on");
    const auto of_saves = answers_of_saves(document, plans, folder.path());
    EXPECT_EQ(difference({of_saves.begin(), of_saves.end()}, got, 0), "");
    // Rounded caches amplify a float's rounding, which may decide between tokens whose scores are
    // close, or between codes of few bits: that choices are those of one rank is shown with f32.
    if (kind || document.is_in_groups()) continue;
    EXPECT_EQ(difference(document.answers_alone(), got, document.tolerance()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(SavedBy, RestoreOnRing, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace longhaul::test
