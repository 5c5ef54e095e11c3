// `longhaul supervise` on one host. What it does when hosts are lost: tests/multihost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "tests/fault/child_process.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Ended;
using testing::HasSubstr;

constexpr int kStopped = 75;

// A launcher whose rank lives for less than a second, and which does not end then.
constexpr const char* kHangingLauncher = R"(#!/bin/sh
"$@" &
sleep 0.8
kill -9 $!
sleep 1000
)";

// It looked for ranks once a second and began to count --grace when it had seen one: with ranks
// that lived for less it waited for ever.
TEST(Supervise, EndsALauncherThatOutlivesRanksOfLessThanASecond) {
  const test::TemporaryFolder folder;
  const fs::path launcher = folder.path() / "hangs";
  replace_file(launcher, kHangingLauncher);
  fs::permissions(launcher, fs::perms::owner_all);
  replace_file(folder.path() / "requests.jsonl",
               R"({"custom_id":"a","method":"POST","url":"/v1/completions",)"
               R"("body":{"prompt":"Harbour","max_tokens":100000,"ignore_eos":true}})"
               "\n");
  const Ended supervised =
      ChildProcess(folder.path(),
                   {"supervise", "--grace", "1", "--max-restarts", "0", "--", launcher.string(),
                    LONGHAUL_PROGRAM_PATH, "run", "-m", test::example_path("model").string(), "-i",
                    (folder.path() / "requests.jsonl").string(), "-o",
                    (folder.path() / "results.jsonl").string()})
          .end();
  EXPECT_EQ(supervised.status, kStopped) << supervised.errors;
  EXPECT_THAT(supervised.errors, HasSubstr("no rank is left on this host"));
}

// A job that was told to stop, and does not, held a batch system's allocation.
TEST(Supervise, KillsAJobThatDoesNotEndAfterASignal) {
  const test::TemporaryFolder folder;
  const fs::path launcher = folder.path() / "deaf";
  replace_file(launcher,
               "#!/bin/sh\ntrap 'echo heard >&2' USR1\n"
               "echo begins >&2\nwhile :; do sleep 0.1; done\n");
  fs::permissions(launcher, fs::perms::owner_all);
  ChildProcess process(folder.path(), {"supervise", "--stop-timeout", "2", "--", launcher.string(),
                                       LONGHAUL_PROGRAM_PATH, "run"});
  while (process.running() && process.errors().find("begins") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  process.signal(SIGUSR1);
  EXPECT_EQ(process.wait(), kStopped) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("heard"));
  EXPECT_THAT(process.errors(),
              HasSubstr("has not ended within 2 s of signal 10 (--stop-timeout)"));
}

// Of the name mpirun, so that it is asked for its hosts: a question is answered at once. What the
// first start of the job does is `FIRST`, and the others what `THEN` says.
constexpr const char* kUnsureLauncher = R"(#!/bin/sh
folder=$(dirname "$0")
case "$*" in
  *requests.jsonl*) ;;
  *) exit 0 ;;
esac
shift 2
if [ -e "$folder/begun" ]; then THEN; else touch "$folder/begun"; FIRST; fi
)";

class UnsureLauncher : public testing::Test {
 protected:
  Ended supervised(const std::string& first, const std::string& then,
                   const std::vector<std::string>& flags = {}) {
    std::string script = kUnsureLauncher;
    script.replace(script.find("THEN"), 4, then);
    script.replace(script.find("FIRST"), 5, first);
    const fs::path launcher = folder_.path() / "mpirun";
    replace_file(launcher, script);
    fs::permissions(launcher, fs::perms::owner_all);
    replace_file(folder_.path() / "requests.jsonl",
                 R"({"custom_id":"a","method":"POST","url":"/v1/completions",)"
                 R"("body":{"prompt":"Harbour","max_tokens":2}})"
                 "\n");
    std::vector<std::string> words = {"supervise", "--max-restarts", "3"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", launcher.string(), "--host", "here", LONGHAUL_PROGRAM_PATH});
    words.insert(words.end(), {"run", "-m", test::example_path("model").string(), "-i"});
    words.insert(words.end(), {(folder_.path() / "requests.jsonl").string(), "-o",
                               (folder_.path() / "results.jsonl").string()});
    return ChildProcess(folder_.path(), words).end();
  }
  static int n_restarts(const std::string& errors) {
    int n = 0;
    for (std::size_t at = 0; (at = errors.find("starts again", at)) != std::string::npos; ++at) ++n;
    return n;
  }

  test::TemporaryFolder folder_;
};

TEST_F(UnsureLauncher, ThatNeverStartsARankIsEnded) {
  const Ended ended =
      supervised("sleep 1000", "exec \"$@\"", {"--launch-timeout", "2", "--grace", "60"});
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("no rank was started on this host since 2 s"));
  EXPECT_EQ(n_restarts(ended.errors), 1) << ended.errors;
}

// As mpirun does when a link is down for a while, and up again when hosts are asked.
TEST_F(UnsureLauncher, ThatFailsAfterAWhileHasAnotherTry) {
  const Ended ended = supervised("sleep 8; exit 1", "exec \"$@\"");
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_EQ(n_restarts(ended.errors), 1) << ended.errors;
}

TEST_F(UnsureLauncher, ThatFailsAgainIsFinal) {
  const Ended ended = supervised("sleep 8; exit 1", "sleep 8; exit 1");
  EXPECT_EQ(ended.status, 1) << ended.errors;
  EXPECT_EQ(n_restarts(ended.errors), 1) << ended.errors;
}

}  // namespace
}  // namespace longhaul
