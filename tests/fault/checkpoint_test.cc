// `longhaul run` interrupted while it reads a document, and started again on other ranks: it goes
// on from the last checkpoint, and the answers are those of a run that nobody disturbed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "tests/fault/checkpointed_job.h"
#include "tests/fault/result_files.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST_F(CheckpointedJob, KilledAgainAndAgainItGoesOnWhereItWas) {
  const auto want = undisturbed();
  ASSERT_EQ(want.size(), 8U);
  std::int64_t before = 0;
  for (const char* n_ranks : {"1", "2", "3", "1"}) {
    ChildProcess process(folder(), command(output(), every("2", n_ranks)));
    wait_for_more(process, before);
    process.signal(SIGKILL);
    process.wait();
    if (before > 0) {
      EXPECT_THAT(process.errors(), HasSubstr("document of"));
      EXPECT_THAT(process.errors(), HasSubstr("for the second time"));
    }
    // Killed at any moment, also while it saved: the old files or the new ones, whole.
    const std::int64_t now = n_saved();
    EXPECT_GE(now, before);
    expect_whole();
    before = now;
  }
  EXPECT_GT(before, 0);
  complete(output(), every("2", "2"));
  EXPECT_EQ(texts_of(output()), want);
  EXPECT_FALSE(fs::exists(checkpoints())) << "files that nobody needs any more";
}

TEST_F(CheckpointedJob, ASignalSavesWhatIsReadBeforeTheRunEnds) {
  const auto want = undisturbed();
  std::int64_t before = 0;
  for (const int signal : {SIGUSR1, SIGTERM}) {
    ChildProcess process(folder(), command(output(), every("4", "2")));
    wait_for_more(process, before);
    process.signal(signal);
    EXPECT_EQ(process.wait(), 75) << process.errors();
    EXPECT_GE(n_saved(), before);
    before = n_saved();
  }
  EXPECT_GT(before, 0);
  ChildProcess process(folder(), command(output(), every("4", "3")));
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr(fmt::format("{} from", before)));
  EXPECT_THAT(process.errors(), HasSubstr("0 of them for the second time"));
  EXPECT_EQ(texts_of(output()), want);
}

TEST_F(CheckpointedJob, OnTheSamePlanLogprobsAreTheSameBits) {
  std::string requests = read_file(folder() / "requests.jsonl", 1 << 20);
  for (std::size_t at = 0; (at = requests.find(R"("max_tokens")", at)) != std::string::npos;) {
    const std::string asked = R"("logprobs":5,)";
    requests.insert(at, asked);
    at += asked.size() + 1;
  }
  replace_file(folder() / "requests.jsonl", requests);
  const fs::path cluster = folder() / "cluster.toml";
  replace_file(cluster,
               "headroom = 0.0\n[[node]]\nmemory = \"64 MiB\"\nranks = 2\ngflops = 20.0\n"
               "gb_per_s = 10.0\n");
  const Words words = {"--checkpoint-every", "2", "--ranks", "2", "--cluster", cluster.string()};
  const fs::path calm = folder() / "calm.jsonl";
  complete(calm, {"--checkpoint-every", "never", "--ranks", "2", "--cluster", cluster.string()});
  std::int64_t before = 0;
  for (const int signal : {SIGKILL, SIGTERM}) {
    ChildProcess process(folder(), command(output(), words));
    wait_for_more(process, before);
    process.signal(signal);
    process.wait();
    EXPECT_GE(n_saved(), before);
    before = n_saved();
  }
  EXPECT_GT(before, 0);
  complete(output(), words);
  const auto want = choices_of(calm);
  EXPECT_THAT(want.begin()->second, HasSubstr("\"token_logprobs\":[-"));
  EXPECT_EQ(choices_of(output()), want);
}

// What conversations share depends on which of them are left. So the document had another beginning
// once one was answered: it was read again, or files stayed behind.
TEST_F(CheckpointedJob, ConversationsGoOnWhereTheirDocumentWasRead) {
  const std::string of_river = "What is the access code of maroon river?";
  const std::vector<Words> trials = {
      {"What is the access code of maroon phoenix?", of_river},
      {"Which code?", of_river, "What is the access code of silver hill?"}};
  replace_file(folder() / "t.jinja",
               "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}");
  const Words words = {"--checkpoint-every", "1", "--chat-template",
                       (folder() / "t.jinja").string()};
  for (const Words& questions : trials) {
    const fs::path results = folder() / fmt::format("{}.jsonl", questions.size());
    const fs::path checkpoints = folder() / fmt::format("{}.checkpoints", questions.size());
    // Answers to all but the first question take so long that the run can be stopped before.
    const auto stopped_run = [&](int max_tokens) {
      std::string requests;
      for (const std::string& question : questions) {
        requests += fmt::format(
            R"({{"custom_id":"{}","method":"POST","url":"/v1/chat/completions","body":)"
            R"({{"documents":[{{"path":"w.txt"}}],"messages":[{{"role":"user","content":"{}"}}],)"
            R"("max_tokens":{},"ignore_eos":true}}}})"
            "\n",
            question, question, question == questions.front() ? 2 : max_tokens);
      }
      replace_file(folder() / "requests.jsonl", requests);
      Words anew = words;
      anew.push_back("--overwrite");
      ChildProcess process(folder(), command(results, anew));
      while (process.running() && count_lines(results) == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      process.signal(SIGTERM);
      const int status = process.wait();
      EXPECT_TRUE(status == 75 || status == 0) << process.errors();
      return status == 75;
    };
    int max_tokens = 400;
    while (!stopped_run(max_tokens)) ASSERT_LT(max_tokens *= 4, 1 << 20);
    ASSERT_FALSE(saved_masters(checkpoints).empty());
    ChildProcess second(folder(), command(results, words));
    EXPECT_EQ(second.wait(), 0);
    EXPECT_THAT(second.errors(), HasSubstr(" from " + checkpoints.string()));
    EXPECT_FALSE(fs::exists(checkpoints)) << "files that nobody needs any more";
    EXPECT_EQ(choices_of(results).size(), questions.size());
  }
}

TEST_F(CheckpointedJob, AFolderThatCannotBeWrittenCostsACheckpointAndNotTheRun) {
  const auto want = undisturbed();
  // Where the folder should be stands a file.
  replace_file(checkpoints(), "in the way\n");
  ChildProcess process(folder(), command(output(), every("2", "2")));
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("no more checkpoints are saved, the run goes on"));
  EXPECT_EQ(texts_of(output()), want);
}

}  // namespace
}  // namespace longhaul::test
