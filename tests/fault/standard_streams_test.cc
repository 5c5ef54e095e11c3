// Whoever starts the program may have closed its stdout or stderr, or sent them to a full disk.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "tests/fault/child_process.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using test::ChildProcess;
using test::Ended;
using test::Words;
using testing::HasSubstr;
using testing::Not;

class StandardStreams : public testing::Test {
 protected:
  // `redirection` as a shell has it; the other streams are those of ChildProcess.
  Ended run(const std::string& redirection, const Words& words) const {
    return ChildProcess(folder_.path(), words, {}, {"sh", "-c", "exec \"$@\" " + redirection, "sh"})
        .end();
  }
  std::string file(std::string_view name) const { return (folder_.path() / name).string(); }
  std::string results() const { return read_file(file("out.jsonl"), 1 << 20); }
  Words batch() const {
    replace_file(file("in.jsonl"), R"({"custom_id":"a","method":"POST","url":"/v1/completions",)"
                                   R"("body":{"prompt":"Hi","max_tokens":2}})"
                                   "\n");
    return {"run", "-m", model_, "-i", file("in.jsonl"), "-o", file("out.jsonl"), "--overwrite"};
  }
  Words question() const { return {"run", "-m", model_, "-p", "Hi", "-n", "2"}; }

  const std::string model_ = test::example_path("model").string();
  const test::TemporaryFolder folder_;
};

TEST_F(StandardStreams, AStderrThatIsFullOrClosedStopsNothing) {
  for (const std::string redirection : {"2>/dev/full", "2>&-"}) {
    EXPECT_EQ(run(redirection, batch()).status, 0) << redirection;
    EXPECT_THAT(results(), HasSubstr(R"("custom_id":"a")")) << redirection;
    const Ended asked = run(redirection, question());
    EXPECT_EQ(asked.status, 0) << redirection;
    EXPECT_NE(asked.output, "") << redirection;
  }
}

TEST_F(StandardStreams, FailuresKeepTheirStatusWhereNobodyIsTold) {
  for (const std::string redirection : {"2>/dev/full", "2>&-"}) {
    EXPECT_EQ(run(redirection, {"run", "--nonsense"}).status, 2) << redirection;
    EXPECT_EQ(run(redirection, {"run", "-m", file("none"), "-p", "Hi"}).status, 5) << redirection;
  }
}

TEST_F(StandardStreams, WhatIsSaidToAClosedStderrIsNotInTheResults) {
  ASSERT_EQ(run("2>&-", batch()).status, 0);
  EXPECT_THAT(results(), testing::StartsWith("{"));
  EXPECT_THAT(results(), Not(HasSubstr("longhaul: ")));
}

TEST_F(StandardStreams, WhatStdoutDoesNotTakeIsAnError) {
  const std::vector<Words> commands = {
      question(),
      {"plan", "-m", model_, "--ranks", "2", "--memory", "16G"},
      {"plan", "-m", model_, "--ranks", "2", "--memory", "16G", "--json", "-"},
      {"checksum", "-m", model_},
      {"bench", "-m", model_, "-p", "8", "-n", "0", "-r", "1", "-o", "json"},
      {"run", "--help"},
      {"--version"}};
  for (const Words& words : commands) {
    const Ended full = run(">/dev/full", words);
    EXPECT_EQ(full.status, 4) << words.front() << full.errors;
    EXPECT_THAT(full.errors, HasSubstr("No space left on device"));
    const Ended closed = run(">&-", words);
    EXPECT_EQ(closed.status, 4) << words.front() << closed.errors;
    EXPECT_THAT(closed.errors, HasSubstr("Bad file descriptor"));
  }
}

// The table is longer than what a stream keeps before it writes.
TEST_F(StandardStreams, WhatWasMeasuredIsKeptWhereStdoutTakesNoTable) {
  const Ended full =
      run(">/dev/full", {"eval", "methods", "-m", model_, "--lengths", "128,160", "--depths", "50",
                         "--max-tokens", "1", "--budgets", "50,30", "-o", file("table")});
  EXPECT_EQ(full.status, 4) << full.errors;
  EXPECT_THAT(read_file(file("table.json"), 1 << 20), HasSubstr("160"));
}

TEST_F(StandardStreams, ResultsThatStdoutDoesNotTakeAreAnError) {
  Words words = batch();
  words.pop_back();  // --overwrite
  words.back() = "-";
  EXPECT_EQ(run(">/dev/full", words).status, 4);
}

TEST_F(StandardStreams, AnEarlierFailureIsNotHiddenByAFullStdout) {
  EXPECT_EQ(run(">/dev/full", {"plan", "-m", model_, "--ranks", "2", "--memory", "2M"}).status, 3);
}

TEST_F(StandardStreams, AClosedStdoutThatNothingIsWrittenToIsNone) {
  EXPECT_EQ(run(">&-", batch()).status, 0);
}

// longhaul plan | head
TEST_F(StandardStreams, AReaderThatLeavesEndsTheProgramWithoutAWord) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ::close(pipe[0]);
  const Ended ended = run(fmt::format(">&{}", pipe[1]), {"checksum", "-m", model_});
  ::close(pipe[1]);
  EXPECT_EQ(ended.status, 128 + SIGPIPE);
  EXPECT_EQ(ended.errors, "");
}

// The same in a terminal, where there is `script` to make one.
class Terminal : public StandardStreams {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/bin/script")) GTEST_SKIP() << "no /usr/bin/script";
  }
  Ended run_there(const std::string& kind, const Words& words) const {
    return ChildProcess(folder_.path(), words, {"TERM=" + kind},
                        {"sh", "-c", "exec script -qec \"$*\" /dev/null", "sh"})
        .end();
  }
};

TEST_F(Terminal, TopDoesNotEraseItsOwnError) {
  const Ended ended = run_there("xterm", {"top", "9"});  // nobody listens there
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.output, HasSubstr("longhaul: error: "));
  EXPECT_THAT(ended.output, Not(HasSubstr("\033[")));
}

TEST_F(Terminal, ADumbOneGetsNoLinesThatAreWrittenOver) {
  EXPECT_THAT(run_there("xterm", batch()).output, HasSubstr("\r\033[K"));
  const Ended dumb = run_there("dumb", batch());
  EXPECT_EQ(dumb.status, 0);
  EXPECT_THAT(dumb.output, HasSubstr("longhaul: 1 done"));
  EXPECT_THAT(dumb.output, Not(HasSubstr("\033[")));
}

}  // namespace
}  // namespace longhaul
