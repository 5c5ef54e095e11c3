#include "coordinator/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(PrefillCost, FindsBothParts) {
  PrefillCost cost;
  const auto truth = [](double n, double history) {
    return 1e-3 * n + 1e-6 * n * (history + n / 2);
  };
  for (std::int64_t h = 0; h < 10000; h += 500)
    cost.add(500, h, truth(500, static_cast<double>(h)));
  EXPECT_NEAR(cost.seconds_for(90000, 10000), truth(90000, 10000), 1e-6 * truth(90000, 10000));
}

TEST(PrefillCost, IsNeverNegative) {
  PrefillCost cost;
  EXPECT_EQ(cost.seconds_for(100, 0), 0);
  cost.add(100, 0, 1.0);
  EXPECT_NEAR(cost.seconds_for(200, 0), 2.0, 1e-12);
  cost.add(100, 1000, 0.5);  // faster later: noise
  EXPECT_GE(cost.seconds_for(1000, 100000), 0);
}

TEST(Progress, ShowsWhatWasDone) {
  Progress progress({.group_bytes = {4000, 8000, 0}, .n_requests = 4});
  EXPECT_LT(progress.eta_seconds(), 0);
  progress.group_prepared({1000});
  progress.set_unread({{0, 1000}});
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 0/2  requests 0/4"));
  progress.sent(PrefillChunk{SequenceId{0}, std::vector<std::int32_t>(1000)});
  StepDone step;
  step.kv_bytes_in_use = 1 << 20;
  step.seconds = 2;
  progress.received(step);
  progress.set_unread({});
  EXPECT_NEAR(progress.eta_seconds(), 4.0, 1e-9);  // 8000 bytes left, 4 bytes a token
  progress.request_ended(true, 5);
  progress.request_ended(false, 0);
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 1/2  requests 2/4 (1 failed)"));
  EXPECT_THAT(progress.line(), testing::HasSubstr("prefill 1000 tokens, 500/s"));
  EXPECT_THAT(progress.line(), testing::HasSubstr("kv 1.00 MiB"));
}

// Of many small prompts, what happens between steps is most of the time.
TEST(Progress, ForeseesWhatPromptsAndTheTimeBetweenStepsTake) {
  Deadline now{};
  Progress progress({.group_bytes = std::vector<std::size_t>(1000), .n_requests = 1000},
                    [&] { return now; });
  now += std::chrono::hours(1);  // until the first step
  for (std::int64_t i = 0; i < 100; ++i) {
    progress.group_prepared({});
    progress.sent(PrefillChunk{SequenceId{i}, std::vector<std::int32_t>(20)});
    now += std::chrono::seconds(2);
    StepDone step;
    step.seconds = 0.5;
    progress.received(step);
    progress.request_ended(true, i % 2);  // of some only the logprobs are wanted
  }
  EXPECT_NEAR(progress.eta_seconds(), 1800, 1);
}

TEST(Progress, DoesNotSayThatNoTimeIsLeftBeforeTheFirstAnswer) {
  Progress progress({.group_bytes = {4000}, .n_requests = 2});
  progress.group_prepared({1000});
  progress.set_unread({{0, 1000}});
  progress.sent(PrefillChunk{SequenceId{1}, std::vector<std::int32_t>(500)});
  StepDone step;
  step.seconds = 3;
  progress.received(step);
  progress.set_unread({{500, 1000}});
  EXPECT_NEAR(progress.eta_seconds(), 3, 1e-9);
  progress.set_unread({});
  EXPECT_LT(progress.eta_seconds(), 0);
}

// Chunks of documents are not slower because steps of few tokens are.
TEST(Progress, ForeseesDocumentsByTheTimeOfDocuments) {
  Deadline now{};
  Progress progress({.group_bytes = {4000, 0, 4000}, .n_requests = 20}, [&] { return now; });
  const auto prefill = [&](std::size_t n_tokens, double seconds) {
    progress.sent(PrefillChunk{SequenceId{1}, std::vector<std::int32_t>(n_tokens)});
    now += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    StepDone step;
    step.seconds = seconds;
    progress.received(step);
    progress.sent(DropSequences{.sequences = {SequenceId{1}}});
    progress.received(StepDone{});
  };
  progress.group_prepared({1000});
  prefill(1000, 10);
  progress.group_prepared({});
  for (int i = 0; i < 10; ++i) {
    prefill(1, 0.2);
    progress.request_ended(true, 1);
  }
  EXPECT_NEAR(progress.eta_seconds(), 12, 0.5);
}

TEST(Progress, HandsOnStepsWithTheirLengths) {
  Progress progress({});
  std::vector<StepOfRun> steps;
  progress.hand_steps_to([&](const StepOfRun& step) { steps.push_back(step); });
  const SequenceId sequence{3};
  StepDone done;
  done.seconds = 2;
  EXPECT_EQ(progress.seconds_until_read({100}, 0), 0);
  for (int i = 0; i < 2; ++i) {
    progress.sent(PrefillChunk{.sequence = sequence, .tokens = std::vector<std::int32_t>(100)});
    progress.sent(DecodeBatch{.rows = {{.sequence = sequence, .token = 7}}});
    progress.received(done);
    progress.received(done);
  }
  progress.set_unread({{0, 100}});
  EXPECT_NEAR(progress.seconds_until_read({200}, 0), 6, 0.5);  // 50 tokens a second
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_TRUE(steps[2].is_prefill);
  EXPECT_EQ(steps[2].history, 101);
  EXPECT_EQ(steps[2].n_tokens, 100);
  EXPECT_FALSE(steps[3].is_prefill);
  EXPECT_EQ(steps[3].history, 202);
  EXPECT_EQ(steps[3].n_tokens, 1);
  EXPECT_EQ(steps[3].seconds, 2);
}

TEST(Progress, TellsTheTimeLeftOnANarrowTerminal) {
  Progress progress({.group_bytes = {4000, 4000}, .n_requests = 4});
  progress.group_prepared({1000});
  progress.sent(PrefillChunk{.sequence = SequenceId{1}, .tokens = std::vector<std::int32_t>(1000)});
  StepDone done;
  done.seconds = 2;
  progress.received(done);
  const std::string whole = progress.line();
  for (std::size_t width = 20; width <= 120; ++width) {
    const std::string line = progress.line(width);
    EXPECT_TRUE(line.size() <= width || line == "requests 0/4") << line;
    if (width < 25) continue;
    EXPECT_THAT(line, testing::HasSubstr("ETA ")) << width;
  }
  EXPECT_EQ(progress.line(whole.size()), whole);
  EXPECT_THAT(progress.summary(), testing::Not(testing::HasSubstr("kv ")));
  EXPECT_THAT(progress.summary(), testing::Not(testing::HasSubstr("ETA")));
}

TEST(Progress, SaysHowFarEachDocumentIs) {
  Progress progress({.group_bytes = {4000, 0, 4000, 8000, 800}, .n_requests = 9});
  progress.set_lanes(2);
  progress.group_prepared({1000}, 0);
  progress.group_prepared({}, 1);
  progress.group_prepared({1000}, 0);
  progress.group_prepared({2000}, 1);
  progress.set_unread({{300, 1000}}, 0);  // of two alike the later one: they are read in order
  progress.set_unread({{500, 2000}}, 1);
  progress.set_running(3, 0);
  progress.set_running(1, 1);
  const RunFigures figures = progress.figures();
  ASSERT_EQ(figures.documents.size(), 4);
  EXPECT_EQ(figures.documents[0].n_read, 1000);
  EXPECT_EQ(figures.documents[1].n_read, 300);
  EXPECT_EQ(figures.documents[2].n_read, 500);
  EXPECT_EQ(figures.documents[3].n_tokens, -1);
  EXPECT_EQ(figures.documents[3].group, 4);
  EXPECT_EQ(figures.n_documents, 4);
  EXPECT_EQ(figures.n_documents_read, 1);
  EXPECT_EQ(figures.n_running, 4);
  const RunFigures some = progress.figures(2);
  ASSERT_EQ(some.documents.size(), 2);
  EXPECT_EQ(some.documents[0].group, 2);  // those next in line
}

// Where methods cut documents, those of one group may be a text and its beginning.
TEST(Progress, CountsAGroupOfSeveralDocumentsOnce) {
  Progress progress({.group_bytes = {4000, 4000}, .n_requests = 3});
  progress.group_prepared({1000, 999});
  progress.group_prepared({500});
  progress.set_unread({{200, 1000}, {0, 999}, {0, 500}});
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 0/2"));
  EXPECT_EQ(progress.figures().documents[0].n_read, 200);
  progress.set_unread({{99, 999}, {0, 500}});
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 0/2"));
  EXPECT_EQ(progress.figures().n_documents_read, 0);
  progress.set_unread({{0, 500}});
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 1/2"));
  EXPECT_EQ(progress.figures().n_documents_read, 1);
}

TEST(Progress, AddsUpRequestsAndSteps) {
  Progress progress({.group_bytes = {}, .n_requests = 2});
  progress.request_ended(true, 5);
  progress.request_answered({.queued_seconds = 3,
                             .first_token_seconds = 1,
                             .seconds = 4,
                             .n_prompt_tokens = 100,
                             .n_cached_tokens = 60,
                             .finish_reason = "stop"});
  progress.sent(DecodeBatch{.rows = {{SequenceId{0}, 1}, {SequenceId{1}, 1}}});
  StepDone step;
  step.seconds = 0.02;
  progress.received(step);
  const RunFigures figures = progress.figures();
  EXPECT_EQ(figures.finish_reasons.at("stop"), 1);
  EXPECT_EQ(figures.n_cached_tokens, 60);
  EXPECT_EQ(figures.between_tokens.count(), 2);
  EXPECT_EQ(figures.steps.count(), 1);
  EXPECT_NEAR(figures.decode.sum(), 3, 1e-12);
  const std::vector<std::int64_t> counts = figures.first_token.cumulative();
  for (std::size_t i = 0; i < counts.size(); ++i)
    EXPECT_EQ(counts[i], Durations::bounds()[i] >= 1 ? 1 : 0) << Durations::bounds()[i];
}

}  // namespace
}  // namespace longhaul
