#include "coordinator/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/random.h"
#include "tests/unit/coordinator/fake_worker.h"
#include "tests/unit/coordinator/random_jobs.h"

namespace longhaul {
namespace {

using test::FakeWorker;
using test::for_jobs;
using test::Ids;
using test::random_groups;
using test::random_ids;
using test::TokenRange;

struct Outcome {
  std::map<std::int64_t, Ids> answers;  // of requests that ended well
  std::map<std::int64_t, std::string> failures;
  std::map<std::int64_t, std::int64_t> n_scored;
};

// Plays the engine's part: sends ahead, consumes in order, finishes at max_tokens.
class Harness {
 public:
  Harness(const SchedulerConfig& config, FakeWorker& worker, std::size_t n_ahead)
      : scheduler_(config), worker_(worker), n_ahead_(n_ahead) {}

  Outcome run(std::vector<JobGroup> groups) {
    std::size_t next_group = 0;
    std::deque<StepCommand> commands;
    while (true) {
      while (next_group < groups.size() && scheduler_.wants_more()) {
        for_jobs({groups[next_group]}, [&](const auto&, const Job& job) {
          max_tokens_[job.request.value] = job.max_tokens;
        });
        handle(scheduler_.add(std::move(groups[next_group++])));
      }
      while (commands.size() < n_ahead_) {
        auto command = scheduler_.next();
        if (!command) break;
        commands.push_back(std::move(*command));
      }
      if (commands.empty()) break;
      const StepResult result = worker_.step(commands.front());
      commands.pop_front();
      handle(scheduler_.consume(result));
    }
    EXPECT_TRUE(scheduler_.idle());
    EXPECT_EQ(next_group, groups.size());
    EXPECT_EQ(worker_.n_sequences(), 0U) << "sequences were left behind";
    return outcome_;
  }

 private:
  void handle(std::vector<SchedulerEvent> events) {
    for (const SchedulerEvent& event : events) {
      if (const auto* token = std::get_if<TokenAdded>(&event)) {
        if (ended_.contains(token->request.value)) continue;  // of the step that ended it
        Ids& answer = outcome_.answers[token->request.value];
        answer.push_back(token->token.token);
        if (static_cast<std::int64_t>(answer.size()) == max_tokens_[token->request.value])
          end(token->request);
      } else if (const auto* read = std::get_if<PromptRead>(&event)) {
        outcome_.answers[read->request.value] = {};
        end(read->request);
      } else if (const auto* scored = std::get_if<PromptScored>(&event)) {
        outcome_.n_scored[scored->request.value] +=
            static_cast<std::int64_t>(scored->tokens.size());
      } else if (const auto* failed = std::get_if<RequestFailed>(&event)) {
        EXPECT_TRUE(ended_.insert(failed->request.value).second) << "ended twice";
        outcome_.answers.erase(failed->request.value);
        outcome_.failures[failed->request.value] = failed->message;
      }
    }
  }
  void end(RequestId request) {
    EXPECT_TRUE(ended_.insert(request.value).second) << "ended twice";
    scheduler_.finish(request);
  }

  Scheduler scheduler_;
  FakeWorker& worker_;
  std::size_t n_ahead_;
  std::map<std::int64_t, std::int64_t> max_tokens_;
  std::set<std::int64_t> ended_;
  Outcome outcome_;
};

Ids expected_answer(const std::vector<Ids>& documents, const Job& job, TokenRange range = {}) {
  Ids tokens;
  for (const Ids& document : documents)
    tokens.insert(tokens.end(), document.begin(), document.end());
  tokens.insert(tokens.end(), job.prompt.begin(), job.prompt.end());
  const auto n_before = static_cast<std::ptrdiff_t>(tokens.size());
  for (std::int64_t i = 0; i < job.max_tokens; ++i)
    tokens.push_back(test::token_after(tokens, range));
  return {tokens.begin() + n_before, tokens.end()};
}

TEST(Scheduler, EveryRequestEndsOnceWithItsOwnAnswer) {
  for (int round = 0; round < 200 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 100000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    const auto groups = random_groups(random);
    SchedulerConfig config;
    config.chunk_len = random.integer(1, 20);
    config.max_sequences = random.integer(1, 6);
    FakeWorker worker;
    const Outcome outcome =
        Harness(config, worker, static_cast<std::size_t>(random.integer(1, 6))).run(groups);
    EXPECT_LE(worker.largest_batch(), static_cast<std::size_t>(config.max_sequences));
    EXPECT_TRUE(outcome.failures.empty());
    for_jobs(groups, [&](const std::vector<Ids>& documents, const Job& job) {
      ASSERT_TRUE(outcome.answers.contains(job.request.value));
      EXPECT_EQ(outcome.answers.at(job.request.value), expected_answer(documents, job));
      if (job.score_logprobs >= 0) {
        const auto n = static_cast<std::int64_t>(job.prompt.size());
        const auto at = outcome.n_scored.find(job.request.value);
        EXPECT_EQ(at == outcome.n_scored.end() ? 0 : at->second,
                  documents.back().empty() ? n - 1 : n);
      }
    });
    EXPECT_EQ(worker.n_sequences(), 0U);
  }
}

// Of few words an answer repeats what was before often, by chance.
TEST(Scheduler, GuessesChangeNoAnswer) {
  std::int64_t n_true = 0;
  for (int round = 0; round < 100 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 250000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    const TokenRange words{0, 2};
    auto groups = random_groups(random);
    const auto in_few_words = [](Ids& ids) {
      for (std::int32_t& id : ids) id %= 2;
    };
    for (JobGroup& group : groups) {
      in_few_words(group.document);
      for (JobGroup& part : group.parts) in_few_words(part.document);
      for (Job& job : group.jobs) {
        in_few_words(job.prompt);
        job.max_tokens *= 5;
      }
    }
    SchedulerConfig config;
    config.chunk_len = random.integer(1, 20);
    config.max_sequences = random.integer(1, 40);
    config.lookup = {.most = random.integer(1, 63), .least = random.integer(1, 5)};
    FakeWorker worker(words);
    const Outcome outcome =
        Harness(config, worker, static_cast<std::size_t>(random.integer(1, 6))).run(groups);
    for_jobs(groups, [&](const std::vector<Ids>& documents, const Job& job) {
      EXPECT_EQ(outcome.answers.at(job.request.value), expected_answer(documents, job, words));
    });
    EXPECT_LE(worker.most_decode_rows(), 64U);
    n_true += worker.n_true_guesses();
  }
  EXPECT_GT(n_true, 1000);
}

TEST(Scheduler, AnAnswerOfAGivenFormIsNotGuessed) {
  SchedulerConfig config;
  config.lookup = {.most = 8, .least = 1};
  FakeWorker worker(TokenRange{0, 1});
  Job job{.request = RequestId{1}, .prompt = {0, 0, 0}, .sampling = {}, .max_tokens = 20};
  job.may_guess = false;
  Harness(config, worker, 2).run({{{0, 0, 0, 0}, {job}}});
  EXPECT_EQ(worker.n_guesses(), 0);
  job.may_guess = true;
  Harness(config, worker, 2).run({{{0, 0, 0, 0}, {job}}});
  EXPECT_GT(worker.n_true_guesses(), 10);
}

TEST(Scheduler, AFailedStepCostsItsOwnRequestsOnly) {
  for (int round = 0; round < 300 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 200000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    const auto groups = random_groups(random);
    SchedulerConfig config;
    config.chunk_len = random.integer(1, 20);
    config.max_sequences = random.integer(1, 6);
    FakeWorker worker;
    std::size_t n_decode_failures = 0;
    worker.fails = [&](const StepCommand& command) {
      if (std::holds_alternative<DropSequences>(command) || !random.chance(0.03)) return false;
      if (const auto* batch = std::get_if<DecodeBatch>(&command))
        n_decode_failures += batch->rows.size();
      return true;
    };
    const Outcome outcome =
        Harness(config, worker, static_cast<std::size_t>(random.integer(1, 6))).run(groups);
    EXPECT_LE(n_decode_failures, outcome.failures.size());
    for_jobs(groups, [&](const std::vector<Ids>& documents, const Job& job) {
      const bool failed = outcome.failures.contains(job.request.value);
      EXPECT_NE(failed, outcome.answers.contains(job.request.value));
      if (!failed) {
        EXPECT_EQ(outcome.answers.at(job.request.value), expected_answer(documents, job));
      }
    });
  }
}

TEST(Scheduler, StaysWithinItsMemory) {
  for (int round = 0; round < 200 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 300000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    const auto groups = random_groups(random);
    SchedulerConfig config;
    config.chunk_len = random.integer(1, 20);
    config.max_sequences = random.integer(1, 6);
    config.budget.heads = HeadTable(1, 1);
    config.budget.bytes_per_head_and_token = 1;
    config.budget.chunk_len = config.chunk_len;
    config.budget.limit_bytes = static_cast<std::size_t>(random.integer(30, 150));
    FakeWorker worker;
    const Outcome outcome = Harness(config, worker, 2).run(groups);
    EXPECT_LE(worker.most_tokens(), config.budget.limit_bytes);
    for_jobs(groups, [&](const std::vector<Ids>& documents, const Job& job) {
      std::int64_t n = 0;
      std::size_t need = 0;
      const auto add = [&](std::int64_t n_more) {
        need += config.budget.bytes_for({n, n + n_more});
        n += n_more;
      };
      for (const Ids& document : documents) add(static_cast<std::int64_t>(document.size()));
      add(static_cast<std::int64_t>(job.prompt.size()) + job.max_tokens);
      EXPECT_EQ(outcome.failures.contains(job.request.value), need > config.budget.limit_bytes);
    });
  }
}

// A document of 1000 tokens and a window of 10: the cache never holds more than the window and a
// chunk, and a request on it is accepted by a limit far below 1000.
TEST(Scheduler, AcceptsADocumentThatAModelsWindowsMakeSmall) {
  ModelSpec spec;
  spec.n_layers = 1;
  spec.n_kv_heads = 1;
  spec.attention_window = {10};
  SchedulerConfig config;
  config.chunk_len = 8;
  config.budget = {.limit_bytes = 60,
                   .heads = dense_heads(spec),
                   .bytes_per_head_and_token = 1,
                   .chunk_len = config.chunk_len};
  FakeWorker worker;
  const JobGroup group{Ids(1000, 7), {{RequestId{0}, {1, 2}, {}, 5, -1}}};
  EXPECT_TRUE(Harness(config, worker, 2).run({group}).failures.empty());
  spec.attention_window.clear();
  config.budget.heads = dense_heads(spec);
  FakeWorker other;
  EXPECT_EQ(Harness(config, other, 2).run({group}).failures.size(), 1U);
}

TEST(Scheduler, ReadsADocumentOnceAndSharesIt) {
  JobGroup group{Ids(100, 7), {}};
  for (std::int64_t i = 0; i < 10; ++i)
    group.jobs.push_back({RequestId{i}, {static_cast<std::int32_t>(i), 1}, {}, 5, -1});
  FakeWorker worker;
  SchedulerConfig config;
  config.chunk_len = 16;
  config.max_sequences = 4;
  const Outcome outcome = Harness(config, worker, 2).run({group});
  EXPECT_EQ(outcome.answers.size(), 10U);
  EXPECT_EQ(worker.n_prefilled(), 100 + 10 * 2);
  EXPECT_EQ(worker.largest_batch(), 4U);
}

// Answers to two prompts on one document: each prompt is read once, beside its last token.
TEST(Scheduler, ReadsThePromptOfSeveralAnswersOnce) {
  JobGroup group{Ids(100, 7), {}};
  std::int64_t n_requests = 0;
  for (const std::int32_t prompt : {1, 2}) {
    JobGroup part{Ids(30, prompt), {}};
    for (int i = 0; i < 6; ++i) part.jobs.push_back({RequestId{n_requests++}, {9}, {}, 5, -1});
    group.parts.push_back(std::move(part));
  }
  FakeWorker worker;
  SchedulerConfig config;
  config.chunk_len = 16;
  config.max_sequences = 4;
  const Outcome outcome = Harness(config, worker, 2).run({group});
  EXPECT_EQ(outcome.answers.size(), 12U);
  EXPECT_EQ(worker.n_prefilled(), 100 + 2 * 30 + 12);
  EXPECT_EQ(worker.largest_batch(), 4U);
  EXPECT_EQ(worker.n_sequences(), 0U);
}

TEST(Scheduler, DecodesWhileTheNextDocumentIsRead) {
  // One long answer over a short document, then a long document: the answer must not wait for it.
  JobGroup first{{1, 2, 3}, {{RequestId{0}, {4}, {}, 20, -1}}};
  JobGroup second{Ids(1000, 5), {{RequestId{1}, {6}, {}, 1, -1}}};
  FakeWorker worker;
  std::int64_t most_prefilled_at_decode = 0;
  worker.fails = [&](const StepCommand& command) {
    if (std::holds_alternative<DecodeBatch>(command))
      most_prefilled_at_decode = worker.n_prefilled();
    return false;
  };
  SchedulerConfig config;
  config.chunk_len = 10;
  Harness(config, worker, 1).run({first, second});
  EXPECT_LE(most_prefilled_at_decode, 4 + 22 * 10);
}

SchedulerConfig saving_config() {
  return {.chunk_len = 4,
          .max_sequences = 3,
          .budget = {},
          .save = SaveCaches{.folder = "caches", .identity = "tiny", .facts = {{"note", "yes"}}}};
}

TEST(Scheduler, SavesEachDocumentOnceBeforeItsRequestsStart) {
  const Ids document = {1, 2, 3, 4, 5, 6};
  std::vector<JobGroup> groups;
  for (const Ids& text : {document, Ids{}, document}) {
    const auto n = static_cast<std::int64_t>(2 * groups.size());
    groups.push_back(
        {text, {{RequestId{n}, {9}, {}, 2, -1}, {RequestId{n + 1}, {8, 7}, {}, 3, -1}}});
  }
  FakeWorker worker;
  std::map<SequenceId, std::size_t> n_saved_at_fork;
  worker.fails = [&](const StepCommand& command) {
    if (const auto* fork = std::get_if<ForkSequence>(&command))
      n_saved_at_fork.try_emplace(fork->parent, worker.saved().size());
    return false;
  };
  const Outcome outcome = Harness(saving_config(), worker, 2).run(groups);
  EXPECT_EQ(outcome.answers.size(), 6U);
  ASSERT_EQ(worker.saved().size(), 2U) << "one for each group with a document";
  for (const SaveSequence& saved : worker.saved()) {
    EXPECT_EQ(saved.folder, "caches");
    EXPECT_EQ(saved.tokens, document);
    EXPECT_EQ(saved.name, worker.saved().front().name) << "the same tokens have the same name";
    EXPECT_EQ(saved.facts.front().value, "yes");
    ASSERT_TRUE(n_saved_at_fork.contains(saved.sequence));
    EXPECT_GE(n_saved_at_fork[saved.sequence], 1U);
  }
}

TEST(Scheduler, AFailedSaveEndsTheRunWithItsReason) {
  FakeWorker worker;
  worker.fails = [](const StepCommand& command) {
    return std::holds_alternative<SaveSequence>(command);
  };
  Harness harness(saving_config(), worker, 2);
  try {
    harness.run({{{1, 2, 3}, {{RequestId{0}, {9}, {}, 1, -1}}}});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(), testing::HasSubstr("could not be saved: made to fail"));
  }
}

SavedStart start_of(FakeWorker& worker, const std::string& name, const Ids& tokens) {
  worker.files[name] = tokens;
  return {.folder = "caches",
          .name = name,
          .content_id = "1",
          .n_tokens = static_cast<std::int64_t>(tokens.size())};
}

std::vector<JobGroup> two_questions_on(const Ids& document, std::deque<SavedStart> starts) {
  return {{.document = document,
           .jobs = {{RequestId{0}, {9}, {}, 2, -1}, {RequestId{1}, {8, 7}, {}, 3, -1}},
           .starts = std::move(starts)}};
}

TEST(Scheduler, WhatASavedDocumentHasIsNotReadAgain) {
  const Ids document = {1, 2, 3, 4, 5, 6};
  FakeWorker reads;
  const Outcome want = Harness(saving_config(), reads, 2).run(two_questions_on(document, {}));
  for (const std::size_t n_saved : {6U, 5U, 1U}) {
    FakeWorker worker;
    const Ids saved(document.begin(), document.begin() + static_cast<std::ptrdiff_t>(n_saved));
    auto groups = two_questions_on(document, {start_of(worker, "a", saved)});
    const Outcome got = Harness(saving_config(), worker, 2).run(std::move(groups));
    EXPECT_EQ(got.answers, want.answers);
    EXPECT_EQ(worker.n_prefilled(), reads.n_prefilled() - static_cast<std::int64_t>(n_saved));
    EXPECT_EQ(worker.saved().size(), n_saved == 6 ? 0U : 1U) << "it is there";
  }
}

TEST(Scheduler, AStartThatCannotBeUsedGivesWayToTheNextAndThenToReading) {
  const Ids document = {1, 2, 3, 4, 5, 6};
  FakeWorker reads;
  const Outcome want = Harness(saving_config(), reads, 2).run(two_questions_on(document, {}));
  for (const bool is_second_good : {true, false}) {
    FakeWorker worker;
    worker.failure = ErrorCode::kCorruptData;
    worker.fails = [&](const StepCommand& command) {
      const auto* restore = std::get_if<RestoreSequence>(&command);
      return restore != nullptr && (restore->name == "a" || !is_second_good);
    };
    auto groups = two_questions_on(
        document, {start_of(worker, "a", {1, 2, 3, 4}), start_of(worker, "b", {1, 2, 3})});
    EXPECT_EQ(Harness(saving_config(), worker, 2).run(std::move(groups)).answers, want.answers);
    EXPECT_EQ(worker.n_prefilled(), reads.n_prefilled() - (is_second_good ? 3 : 0));
  }
}

TEST(Scheduler, AStartThatMustWorkEndsTheRunWithItsReason) {
  FakeWorker worker;
  worker.failure = ErrorCode::kCorruptData;
  worker.fails = [](const StepCommand& command) {
    return std::holds_alternative<RestoreSequence>(command);
  };
  SavedStart start = start_of(worker, "a", {1, 2});
  start.must_work = true;
  Harness harness(saving_config(), worker, 2);
  try {
    harness.run(two_questions_on({1, 2, 3}, {start}));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot be used: made to fail"));
  }
}

TEST(SaveCaches, NamesDependOnTokensAndIdentityAlone) {
  const SaveCaches save{.folder = "a", .identity = "x", .facts = {}};
  const auto name = [](const SaveCaches& s, Ids ids) {
    return save_command(s, SequenceId{1}, std::move(ids)).name;
  };
  EXPECT_EQ(name(save, {1, 2}), name({"b", "x", {{"note", "no"}}}, {1, 2}));
  EXPECT_NE(name(save, {1, 2}), name(save, {1, 3}));
  EXPECT_NE(name(save, {1, 2}), name({"a", "y", {}}, {1, 2}));
  // printf 'x\001\0\0\0\002\0\0\0' | sha256sum
  EXPECT_EQ(name(save, {1, 2}), "doc-d1823a25d15d7785");
}

// Takes the next command, which must be a chunk, and returns its tokens.
Ids next_chunk(Scheduler& scheduler) {
  const auto command = scheduler.next();
  const auto* chunk = command ? std::get_if<PrefillChunk>(&*command) : nullptr;
  if (chunk == nullptr) {
    ADD_FAILURE() << "no chunk";
    return {};
  }
  return chunk->tokens;
}

TEST(Scheduler, SendsChunksAheadOfResultsToFillAPipeline) {
  Scheduler scheduler({.chunk_len = 2, .max_sequences = 4, .budget = {}});
  scheduler.add({{1, 2, 3, 4, 5}, {{RequestId{0}, {9}, {}, 1, -1}}});
  scheduler.add({{6, 7, 8}, {{RequestId{1}, {9}, {}, 1, -1}}});
  ASSERT_TRUE(std::holds_alternative<OpenSequence>(*scheduler.next()));
  ASSERT_TRUE(std::holds_alternative<OpenSequence>(*scheduler.next()));
  EXPECT_FALSE(scheduler.next()) << "nothing is open yet";
  scheduler.consume(StepDone{});
  scheduler.consume(StepDone{});
  EXPECT_EQ(next_chunk(scheduler), (Ids{1, 2}));
  EXPECT_EQ(next_chunk(scheduler), (Ids{3, 4}));
  EXPECT_EQ(scheduler.unread_documents().front(), (Extent{0, 5})) << "sent is not read";
  EXPECT_EQ(next_chunk(scheduler), (Ids{5}));
  EXPECT_EQ(next_chunk(scheduler), (Ids{6, 7})) << "the next document follows at once";
  scheduler.consume(StepDone{});
  EXPECT_EQ(scheduler.unread_documents().front(), (Extent{2, 5}));
  EXPECT_EQ(next_chunk(scheduler), (Ids{8}));
  EXPECT_FALSE(scheduler.next()) << "a document is forked when it is read";
  scheduler.consume(StepDone{});
  scheduler.consume(StepDone{});
  EXPECT_TRUE(std::holds_alternative<ForkSequence>(*scheduler.next()));
}

TEST(Scheduler, SendsChunksOfALongPromptAheadToo) {
  Scheduler scheduler({.chunk_len = 2, .max_sequences = 4, .budget = {}});
  scheduler.add({{}, {{RequestId{0}, {1, 2, 3, 4, 5}, {}, 1, -1}}});
  ASSERT_TRUE(std::holds_alternative<OpenSequence>(*scheduler.next()));
  scheduler.consume(StepDone{});
  EXPECT_EQ(next_chunk(scheduler), (Ids{1, 2}));
  EXPECT_EQ(next_chunk(scheduler), (Ids{3, 4}));
  const auto last = scheduler.next();
  EXPECT_EQ(std::get<PrefillChunk>(*last).tokens, (Ids{5}));
  EXPECT_EQ(std::get<PrefillChunk>(*last).after, AfterPrefill::kSample);
  EXPECT_FALSE(scheduler.next());
  EXPECT_TRUE(scheduler.consume(StepDone{}).empty());
  EXPECT_TRUE(scheduler.consume(StepDone{}).empty());
  StepDone done;
  done.picked.push_back({{}, 7, 0.0F, {}});
  EXPECT_EQ(scheduler.consume(done).size(), 1U);
}

// The kind of end that each of the chunks brings which the scheduler sends, answered at once.
std::vector<AfterPrefill> ends_of_chunks(const JobGroup& group) {
  Scheduler scheduler({.chunk_len = 2, .max_sequences = 4, .budget = {}});
  scheduler.add(group);
  std::vector<AfterPrefill> ends;
  while (const auto command = scheduler.next()) {
    const auto* chunk = std::get_if<PrefillChunk>(&*command);
    if (std::holds_alternative<DecodeBatch>(*command)) break;
    StepDone done;
    if (chunk != nullptr) ends.push_back(chunk->after);
    if (chunk != nullptr && chunk->after == AfterPrefill::kSample) done.picked = {{{}, 7, 0, {}}};
    scheduler.consume(done);
  }
  return ends;
}

TEST(Scheduler, SaysWhereADocumentAndAPromptEnd) {
  using enum AfterPrefill;
  const JobGroup answered{{1, 2, 3, 4, 5}, {{RequestId{0}, {6, 7, 8}, {}, 1, -1}}};
  EXPECT_EQ(ends_of_chunks(answered),
            (std::vector{kNothing, kNothing, kDocumentEnd, kNothing, kSample}));
  const JobGroup only_read{{1, 2}, {{RequestId{0}, {6, 7}, {}, 0, -1}}};
  EXPECT_EQ(ends_of_chunks(only_read), (std::vector{kDocumentEnd, kPromptEnd}));
  const JobGroup without_document{{}, {{RequestId{0}, {6, 7, 8}, {}, 0, 0}}};
  EXPECT_EQ(ends_of_chunks(without_document), (std::vector{kNothing, kPromptEnd}));
  // What several answers share behind a document, or without one, ends no document.
  const JobGroup shared{{}, {{RequestId{0}, {8}, {}, 1, -1}}};
  JobGroup part = shared;
  part.document = {6, 7, 8};
  EXPECT_EQ(ends_of_chunks({.document = {1, 2}, .jobs = {}, .parts = {part}}),
            (std::vector{kDocumentEnd, kNothing, kSharedEnd, kSample}));
  EXPECT_EQ(ends_of_chunks({.document = {}, .jobs = {}, .parts = {part}}),
            (std::vector{kNothing, kSharedEnd, kSample}));
}

TEST(Scheduler, ALostDocumentWithChunksUnderWayIsLostOnce) {
  Scheduler scheduler({.chunk_len = 2, .max_sequences = 4, .budget = {}});
  scheduler.add({{1, 2, 3, 4, 5, 6}, {{RequestId{0}, {9}, {}, 1, -1}}});
  scheduler.next();
  scheduler.consume(StepDone{});
  for (int i = 0; i < 3; ++i) next_chunk(scheduler);
  EXPECT_TRUE(scheduler.consume(StepDone{}).empty());
  const auto events = scheduler.consume(StepFailed{ErrorCode::kOutOfMemory, "full"});
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<RequestFailed>(events.front()).message, "full");
  // Its last chunk is still to be answered; the drop comes behind it.
  const auto drop = scheduler.next();
  ASSERT_TRUE(std::holds_alternative<DropSequences>(*drop));
  EXPECT_EQ(std::get<DropSequences>(*drop).sequences.size(), 1U);
  EXPECT_TRUE(scheduler.consume(StepFailed{ErrorCode::kFailedPrecondition, "lost"}).empty());
  EXPECT_FALSE(scheduler.idle());
  EXPECT_TRUE(scheduler.consume(StepDone{}).empty());
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, RefusesWhatItsCallersGetWrong) {
  Scheduler scheduler(SchedulerConfig{});
  EXPECT_THROW(scheduler.finish(RequestId{1}), Error);
  EXPECT_THROW(scheduler.consume(StepDone{}), Error);
  EXPECT_THROW(scheduler.add({{1}, {{RequestId{0}, {}, {}, 1, -1}}}), Error);
}

}  // namespace
}  // namespace longhaul
