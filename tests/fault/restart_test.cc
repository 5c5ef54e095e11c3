// A batch that is killed again and again loses nothing: at the end every request has exactly one
// whole line with the text of an undisturbed run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "coordinator/unfinished_answers.h"
#include "tests/fault/child_process.h"
#include "tests/fault/result_files.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::count_lines;
using test::texts_of;
using testing::HasSubstr;

constexpr int kRequests = 50;
constexpr int kDocuments = 5;

class Restart : public testing::Test {
 protected:
  Restart() {
    const std::string log = read_file(test::example_path("documents/harbour_log.txt"), 1 << 20);
    for (std::size_t i = 0; i < kDocuments; ++i)
      replace_file(folder_.path() / fmt::format("{}.txt", i), log.substr(i * 1500, 1200));
    std::string requests;
    for (int i = 0; i < kRequests; ++i) {
      requests += fmt::format(
          R"({{"custom_id":"request-{}","method":"POST","url":"/v1/completions","body":)"
          R"({{"prompt":"\nQuestion {}:","max_tokens":{},"temperature":{},"n":{},)"
          R"("documents":[{{"path":"{}.txt"}}]}}}})"
          "\n",
          i, i, 2 + i % 7, i % 3 == 0 ? "0.8" : "0", i % 6 == 0 ? 3 : 1, i % kDocuments);
    }
    replace_file(folder_.path() / "requests.jsonl", requests);
  }

  std::vector<std::string> command(const fs::path& output) const {
    return {"run",
            "-m",
            test::example_path("model").string(),
            "-i",
            (folder_.path() / "requests.jsonl").string(),
            "-o",
            output.string(),
            "--parallel",
            "3",
            "--chunk-len",
            "256",
            "--threads",
            "1",
            "--no-progress"};
  }
  int run_to_the_end(const fs::path& output) {
    ChildProcess process(folder_.path(), command(output));
    const int status = process.wait();
    EXPECT_EQ(status, 0) << process.errors();
    return status;
  }
  // Waits until `n_lines` more results are there (or the process ended), and a moment longer.
  void wait_for_lines(ChildProcess& process, const fs::path& output, std::int64_t n_lines) {
    const std::int64_t goal = count_lines(output) + n_lines;
    while (process.running() && count_lines(output) < goal)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(random_.integer(0, 40)));
  }

  test::TemporaryFolder folder_;
  test::Random random_{test::base_seed()};
};

TEST_F(Restart, TenKillsLoseNothing) {
  const fs::path undisturbed = folder_.path() / "undisturbed.jsonl";
  const fs::path killed = folder_.path() / "killed.jsonl";
  ASSERT_EQ(run_to_the_end(undisturbed), 0);
  const auto want = texts_of(undisturbed);
  ASSERT_EQ(want.size(), static_cast<std::size_t>(kRequests));

  for (int round = 0; round < 10; ++round) {
    ChildProcess process(folder_.path(), command(killed));
    wait_for_lines(process, killed, random_.integer(0, 5));
    process.signal(SIGKILL);
    process.wait();
  }
  ASSERT_EQ(run_to_the_end(killed), 0);
  EXPECT_EQ(texts_of(killed), want);
  EXPECT_FALSE(fs::exists(folder_.path() / "killed.errors.jsonl"));
}

TEST_F(Restart, ASignalEndsTheRunCleanlyAndTheNextOneContinues) {
  const fs::path output = folder_.path() / "out.jsonl";
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP}) {
    ChildProcess process(folder_.path(), command(output));
    wait_for_lines(process, output, 2);
    process.signal(signal);
    EXPECT_EQ(process.wait(), 75) << process.errors();
    EXPECT_THAT(process.errors(), HasSubstr("run the same command again to go on"));
  }
  ASSERT_EQ(run_to_the_end(output), 0);
  EXPECT_EQ(texts_of(output).size(), static_cast<std::size_t>(kRequests));
  // Once more: there is nothing to do.
  ASSERT_EQ(run_to_the_end(output), 0);
  EXPECT_EQ(count_lines(output), kRequests);
}

TEST_F(Restart, ARunUnderNohupOutlivesItsTerminal) {
  const fs::path output = folder_.path() / "out.jsonl";
  ChildProcess process(folder_.path(), command(output), {}, {"nohup"});
  wait_for_lines(process, output, 2);
  process.signal(SIGHUP);
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_EQ(texts_of(output).size(), static_cast<std::size_t>(kRequests));
}

// Answers without end once started over; later they went on with other bits, for what is read is
// added up in another order than what is answered.
TEST_F(Restart, AnAnswerWithoutEndGoesOnBehindItsLastToken) {
  replace_file(
      folder_.path() / "requests.jsonl",
      R"({"custom_id":"endless","method":"POST","url":"/v1/completions","body":)"
      R"({"prompt":"The harbour","ignore_eos":true,"temperature":0.9,"seed":3,"logprobs":1}})"
      "\n");
  // What was picked when the run was stopped, after some more seconds, for the n-th time.
  const auto picked_after = [&](const std::string& name, int n_stops) {
    std::vector<std::string> words = command(folder_.path() / (name + ".jsonl"));
    words.insert(words.end(), {"-n", "-1", "--policy", "streaming:sink=4,window=64,positions=text",
                               "--weights", "bf16", "--reproducible"});
    const fs::path unfinished = folder_.path() / (name + ".unfinished.jsonl");
    std::vector<PickedToken> picked;
    for (int stop = 0; stop < n_stops; ++stop) {
      const std::size_t n_before = picked.size();
      for (int try_again = 0; picked.size() <= n_before && try_again < 30; ++try_again) {
        ChildProcess process(folder_.path(), words);
        std::this_thread::sleep_for(std::chrono::milliseconds(700 * (1 + try_again)));
        process.signal(SIGTERM);
        const int status = process.wait();
        if (status == 128 + SIGTERM) continue;  // it could not hear of it yet
        EXPECT_EQ(status, 75) << process.errors();
        if (!fs::exists(unfinished)) continue;  // it had not begun to answer
        std::string line = read_file(unfinished, 1 << 26);
        line.pop_back();
        picked = tokens_of_line(line, unfinished.string());
      }
      EXPECT_GT(picked.size(), n_before);
    }
    std::vector<std::pair<std::int32_t, float>> tokens;
    for (const PickedToken& token : picked) tokens.emplace_back(token.token, token.logprob);
    return tokens;
  };
  auto thrice = picked_after("thrice", 3);
  auto once = picked_after("once", 1);
  const std::size_t n = std::min(thrice.size(), once.size());
  thrice.resize(n);
  once.resize(n);
  EXPECT_EQ(thrice, once);
}

// Once an answer went on behind tokens of other weights where somebody had removed the results.
TEST_F(Restart, WhatIsUnfinishedBelongsToTheSettingsInItsManifest) {
  replace_file(folder_.path() / "requests.jsonl",
               R"({"custom_id":"endless","method":"POST","url":"/v1/completions","body":)"
               R"({"prompt":"The harbour","ignore_eos":true}})"
               "\n");
  const fs::path output = folder_.path() / "out.jsonl";
  const fs::path unfinished = folder_.path() / "out.unfinished.jsonl";
  std::vector<std::string> endless = command(output);
  endless.insert(endless.end(),
                 {"-n", "-1", "--policy", "streaming:sink=4,window=64,positions=text"});
  for (int i = 1; !fs::exists(unfinished) && i < 30; ++i) {
    ChildProcess process(folder_.path(), endless);
    std::this_thread::sleep_for(std::chrono::milliseconds(700 * i));
    process.signal(SIGTERM);
    process.wait();
  }
  ASSERT_TRUE(fs::exists(unfinished));
  fs::remove(output);
  fs::remove(folder_.path() / "out.manifest.json");
  const auto text_of = [&](const fs::path& results) {
    std::vector<std::string> words = command(results);
    words.insert(words.end(), {"-n", "5", "--weights", "int4"});
    ChildProcess process(folder_.path(), words);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    return texts_of(results);
  };
  EXPECT_EQ(text_of(output), text_of(folder_.path() / "fresh.jsonl"));
  EXPECT_FALSE(fs::exists(unfinished));
}

}  // namespace
}  // namespace longhaul
