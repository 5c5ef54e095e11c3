// `longhaul supervise` on one host. What it does when hosts are lost: tests/multihost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace longhaul
