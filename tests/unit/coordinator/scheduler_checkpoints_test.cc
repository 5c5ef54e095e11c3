// Documents are saved as far as they are read, when the owner asks; requests go on whatever becomes
// of it, and files are given up when nobody needs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>

#include "coordinator/scheduler.h"
#include "tests/unit/coordinator/fake_worker.h"

namespace longhaul {
namespace {

using Ids = std::vector<std::int32_t>;
using test::FakeWorker;
using testing::ElementsAre;

SchedulerConfig config() {
  return {.chunk_len = 4,
          .budget = {},
          .checkpoint = SaveCaches{.folder = "checkpoints", .identity = "tiny", .facts = {}}};
}

JobGroup group(std::int32_t first_token) {
  Ids document(10);
  std::iota(document.begin(), document.end(), first_token);
  return {document, {{RequestId{first_token}, {9}, {}, 2, -1}}};
}

// Drives a scheduler with as many commands ahead, and asks for checkpoints after every chunk.
class Driver {
 public:
  Driver(FakeWorker& worker, std::size_t n_ahead) : worker_(worker), n_ahead_(n_ahead) {}

  // Until nothing is left, or `n_steps` results came.
  void run(int n_steps = 1000) {
    for (int i = 0; i < n_steps; ++i) {
      while (commands_.size() < n_ahead_) {
        auto command = scheduler.next();
        if (!command) break;
        commands_.push_back(std::move(*command));
      }
      if (commands_.empty()) return;
      step();
    }
  }
  // As a run that was told to stop does.
  void stop() {
    scheduler.request_checkpoints();
    while (auto command = scheduler.next_checkpoint()) commands_.push_back(std::move(*command));
    while (!commands_.empty()) step();
  }

  Scheduler scheduler{config()};
  std::map<std::int64_t, Ids> answers;
  std::vector<std::int64_t> n_read;
  std::vector<std::int64_t> n_saved;
  std::vector<std::string> done;
  std::string failure;

 private:
  void step() {
    const StepResult result = worker_.step(commands_.front());
    commands_.pop_front();
    for (const SchedulerEvent& event : scheduler.consume(result)) handle(event);
    for (std::string& name : scheduler.take_done_documents()) done.push_back(std::move(name));
  }
  void handle(const SchedulerEvent& event) {
    if (const auto* read = std::get_if<ChunkRead>(&event)) {
      n_read.push_back(read->n_read);
      scheduler.request_checkpoints();
    } else if (const auto* saved = std::get_if<Checkpointed>(&event)) {
      n_saved.push_back(saved->n_tokens);
    } else if (const auto* failed = std::get_if<CheckpointFailed>(&event)) {
      failure = failed->message;
      scheduler.stop_checkpoints();
    } else if (const auto* token = std::get_if<TokenAdded>(&event)) {
      Ids& answer = answers[token->request.value];
      answer.push_back(token->token.token);
      if (answer.size() == 2) scheduler.finish(token->request);
    }
  }

  FakeWorker& worker_;
  std::size_t n_ahead_;
  std::deque<StepCommand> commands_;
};

TEST(SchedulerCheckpoints, SaveWhatIsReadAndGiveItUpWhenAllIsAnswered) {
  for (const std::size_t n_ahead : {1U, 2U, 4U}) {
    FakeWorker worker;
    Driver driver(worker, n_ahead);
    driver.scheduler.add(group(20));
    driver.run();
    EXPECT_THAT(driver.n_read, ElementsAre(4, 8, 10));
    EXPECT_FALSE(driver.n_saved.empty());
    ASSERT_EQ(worker.saved().size(), driver.n_saved.size());
    for (std::size_t i = 0; i < driver.n_saved.size(); ++i) {
      const SaveSequence& saved = worker.saved()[i];
      EXPECT_EQ(static_cast<std::int64_t>(saved.tokens.size()), driver.n_saved[i]);
      EXPECT_EQ(saved.folder, "checkpoints");
      EXPECT_TRUE(saved.goes_on);
      EXPECT_THAT(driver.done, ElementsAre(saved.name));
    }
    EXPECT_EQ(driver.answers.size(), 1U);
    EXPECT_TRUE(driver.scheduler.idle());
  }
}

TEST(SchedulerCheckpoints, ARunThatIsToStopSavesEachDocumentOnceMore) {
  FakeWorker worker;
  Driver driver(worker, 2);
  driver.scheduler.add(group(20));
  driver.scheduler.add(group(50));
  driver.run(2);  // opened
  driver.stop();
  EXPECT_LE(driver.n_saved.size(), 2U);
  driver.run(2);
  const std::size_t n_before = driver.n_saved.size();
  driver.stop();
  driver.stop();
  EXPECT_LE(driver.n_saved.size(), n_before + 2) << "nothing new was read in between";
  EXPECT_FALSE(driver.n_saved.empty());
  EXPECT_TRUE(driver.done.empty());
}

TEST(SchedulerCheckpoints, FilesStayWhileAnotherGroupHasTheSameDocument) {
  FakeWorker worker;
  Driver driver(worker, 2);
  JobGroup again = group(20);
  again.jobs.front().request = RequestId{21};
  driver.scheduler.add(group(20));
  driver.scheduler.add(std::move(again));
  for (int i = 0; i < 100 && driver.answers.size() < 2; ++i) {
    EXPECT_TRUE(driver.done.empty());
    driver.run(1);
  }
  driver.run();
  EXPECT_EQ(driver.answers.size(), 2U);
  ASSERT_FALSE(worker.saved().empty());
  EXPECT_THAT(driver.done, ElementsAre(worker.saved().front().name));
}

TEST(SchedulerCheckpoints, OneThatFailsCostsNoRequest) {
  for (const bool at_its_end : {false, true}) {
    FakeWorker worker;
    worker.failure = ErrorCode::kIo;
    worker.fails = [&](const StepCommand& command) {
      return at_its_end ? std::holds_alternative<FinishSave>(command)
                        : std::holds_alternative<SaveSequence>(command);
    };
    Driver driver(worker, 2);
    driver.scheduler.add(group(20));
    driver.run();
    EXPECT_EQ(driver.failure, "made to fail");
    EXPECT_TRUE(driver.n_saved.empty());
    EXPECT_EQ(driver.answers.size(), 1U);
  }
}

TEST(SchedulerCheckpoints, ALostDocumentKeepsItsFiles) {
  FakeWorker worker;
  int n_chunks = 0;
  worker.fails = [&](const StepCommand& command) {
    return std::holds_alternative<PrefillChunk>(command) && ++n_chunks == 2;
  };
  Driver driver(worker, 3);
  driver.scheduler.add(group(20));
  driver.run();
  EXPECT_TRUE(driver.done.empty());
  EXPECT_TRUE(driver.scheduler.idle());
  EXPECT_EQ(worker.n_sequences(), 0U);
}

}  // namespace
}  // namespace longhaul
