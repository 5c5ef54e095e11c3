// Runs that once ended in wrong answers, in "done" without results, or without a word: ranks that
// do not run the same job, files that change under the program, broken weights, signals, slow
// starts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Words;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class Trust : public test::RankedJob {
 protected:
  // A copy of the example model with some bytes of its weights changed.
  fs::path other_model(const std::string& name, std::string_view bytes) {
    const fs::path copy = folder() / name;
    fs::copy(test::example_path("model"), copy, fs::copy_options::recursive);
    std::fstream weights(copy / "model.safetensors",
                         std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-4096, std::ios::end);
    for (int i = 0; i < 1024; ++i) weights.write(bytes.data(), static_cast<long>(bytes.size()));
    return copy;
  }
  Words with_model(Words words, const fs::path& model) const {
    words[2] = model.string();
    return words;
  }
  // Two ranks that were told different things.
  std::unique_ptr<ChildProcess> start_two(const Words& first, const Words& second,
                                          const Words& before_second = {}) const {
    Words words = first;
    words.insert(words.end(), {":", "-n", "1"});
    words.insert(words.end(), before_second.begin(), before_second.end());
    words.emplace_back(LONGHAUL_PROGRAM_PATH);
    words.insert(words.end(), second.begin(), second.end());
    return std::make_unique<ChildProcess>(folder(), words, test::mpirun_variables(),
                                          test::mpirun(1));
  }
  fs::path out() const { return folder() / "out.jsonl"; }
};

TEST_F(Trust, RanksThatDoNotRunTheSameJobEndItBeforeAnythingIsRead) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Words good = command(out());
  {
    const auto job = start_two(good, with_model(good, other_model("stale", "\x3c\x11")));
    EXPECT_EQ(job->wait(), 2) << job->errors();
    EXPECT_THAT(job->errors(),
                AllOf(HasSubstr("rank 1 on "), HasSubstr("does not run the same job"),
                      HasSubstr("sampled_sha256: rank 0 has ")));
  }
  {
    const auto job = start_two(good, command(out(), {"--cache-type-k", "int8"}));
    EXPECT_EQ(job->wait(), 2) << job->errors();
    EXPECT_THAT(job->errors(), HasSubstr("flags.cache-type-k: rank 0 has absent, rank 1 has"));
  }
  {
    // It once said 75: run it again.
    const auto job = start_two(good, with_model(good, "/nope"));
    EXPECT_EQ(job->wait(), 5) << job->errors();
    EXPECT_THAT(job->errors(), AllOf(HasSubstr("rank 1 on "), HasSubstr("no such folder")));
  }
  EXPECT_FALSE(fs::exists(out()));
  const std::string requests = read_file(folder() / "requests.jsonl", 1 << 20);
  replace_file(folder() / "requests.jsonl", requests.substr(0, requests.find('\n') + 1));
  const auto job = start_two(good, good, {"env", "LONGHAUL_ISA=baseline"});
  EXPECT_EQ(job->wait(), 0) << job->errors();
  EXPECT_THAT(job->errors(), AnyOf(HasSubstr("instruction sets differ: "),
                                   HasSubstr("baseline kernels")));  // on a machine with no other
}

TEST_F(Trust, ResultsThatAreRemovedDuringTheRunAreNoSuccess) {
  ChildProcess process(folder(), command(out()));
  wait_for_lines(process, out(), 1);
  fs::remove(out());
  const int status = process.wait();
  EXPECT_EQ(status, 4) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("was changed by somebody else while it was written"));
  EXPECT_THAT(process.errors(), Not(HasSubstr("24 done")));
}

TEST_F(Trust, BrokenWeightsFailRequestsAlikeOnAnyRanks) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::string bytes(sizeof nan, '\0');
  std::memcpy(bytes.data(), &nan, sizeof nan);
  const fs::path broken = other_model("broken", bytes);
  for (const Words& more : {Words{}, Words{"--ranks", "2"}}) {
    fs::remove(folder() / "out.jsonl");
    for (const char* rest : {"out.errors.jsonl", "out.manifest.json"}) fs::remove(folder() / rest);
    ChildProcess process(folder(), with_model(command(out(), more), broken));
    EXPECT_EQ(process.wait(), 1) << process.errors();
    EXPECT_THAT(read_file(folder() / "out.errors.jsonl", 1 << 20),
                HasSubstr("of the logits has NaN; the model's weights"));
  }
}

TEST_F(Trust, WeightsThatAreCutOffUnderTheProgramAreNamed) {
  const fs::path model = other_model("cut", "\x3c\x11");
  ChildProcess process(folder(), with_model(command(out()), model));
  wait_for_lines(process, out(), 1);
  fs::resize_file(model / "model.safetensors", 1000);
  EXPECT_EQ(process.wait(), 4) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("model.safetensors became shorter"));
}

// --overwrite once emptied it, and its request failed since it had changed.
TEST_F(Trust, ADocumentIsNotWrittenOver) {
  const fs::path document = folder() / "record.txt";
  replace_file(document, "The harbour was quiet.");
  replace_file(folder() / "requests.jsonl",
               R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"Hi",)"
               R"("documents":[{"path":"record.txt"}]}})"
               "\n");
  ChildProcess process(folder(), command(document, {"--overwrite"}));
  EXPECT_EQ(process.wait(), 2) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("is a document of these requests"));
  EXPECT_EQ(read_file(document, 100), "The harbour was quiet.");
}

TEST_F(Trust, PipesAsInputsAreRefusedBeforeTheyBlock) {
  const fs::path pipe = folder() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Words words = command(out());
  words[6] = pipe.string();  // the requests
  ChildProcess requests(folder(), words);
  EXPECT_EQ(requests.wait(), 5) << requests.errors();
  EXPECT_THAT(requests.errors(), HasSubstr("it is a pipe"));
}

// It once ended with "no memory to search for a pattern", or was killed.
TEST_F(Trust, WhatALimitOfTheShellLeavesIsWhatThereIs) {
  std::string text;
  while (text.size() < (1 << 18)) text += "The harbour was quiet, and the ledger lay open. ";
  replace_file(folder() / "long.txt", text);
  for (const Words& more : {Words{}, Words{"--ranks", "2"}}) {
    Words words = {"run", "-m", test::example_path("model").string()};
    words.insert(words.end(), {"-f", (folder() / "long.txt").string(), "-p", "Why?", "-t", "1"});
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess process(folder(), words, {},
                         {"sh", "-c", "ulimit -v 300000 && exec \"$0\" \"$@\""});
    EXPECT_EQ(process.wait(), 3) << process.errors();
    EXPECT_THAT(process.errors(), AnyOf(HasSubstr("Any one of these makes it fit:"),
                                        HasSubstr("out of memory: take a shorter document")));
    EXPECT_EQ(process.output(), "");
  }
}

// It was once divided among the processes of the host, so that both of these were refused.
TEST_F(Trust, ALimitOfTheShellIsEachProcessesOwn) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const auto expect_fits = [&](int n_ranks, int kilobytes, const char* document_tokens) {
    Words launcher = test::mpirun(n_ranks);
    const std::string shell = fmt::format("ulimit -v {} && exec \"$0\" \"$@\"", kilobytes);
    // Threads take address space: as many as any machine has.
    launcher.insert(launcher.end(), {"env", "OMP_NUM_THREADS=1", "sh", "-c", shell});
    ChildProcess job(
        folder(),
        {"plan", "-m", test::example_path("model").string(), "--document-tokens", document_tokens},
        test::mpirun_variables(), launcher);
    EXPECT_EQ(job.wait(), 0) << n_ranks << " ranks: " << job.errors() << job.output();
  };
  expect_fits(4, 1'000'000, "1K");
  expect_fits(2, 1'200'000, "100K");
}

// A few of these limits once left too little for the threads that find tokens, which was status 70.
TEST_F(Trust, AnyLimitOfTheShellIsKeptOrItIsSaidWhatDoesNotFit) {
  const auto status_under = [&](int kilobytes, const Words& words, std::string& errors) {
    const std::string shell = fmt::format("ulimit -v {} && exec \"$0\" \"$@\"", kilobytes);
    ChildProcess process(folder(), words, {}, {"sh", "-c", shell});
    const int status = process.wait();
    errors = process.errors();
    return status;
  };
  std::string errors;
  int kilobytes = 50'000;  // what its libraries need
  while (status_under(kilobytes, {"--version"}, errors) != 0)
    ASSERT_LT(kilobytes += 10'000, 4'000'000);
  const fs::path document = folder() / "short.txt";
  replace_file(document, std::string(4000, 'a'));
  const Words words = {"run", "-m",  test::example_path("model").string(),
                       "-t",  "1",   "-n",
                       "1",   "-f",  document.string(),
                       "-p",  "Why?"};
  const int first = kilobytes + 20'000;
  EXPECT_EQ(status_under(first, words, errors), 3) << errors;
  for (kilobytes = first + 10'000; kilobytes <= first + 200'000; kilobytes += 10'000) {
    const int status = status_under(kilobytes, words, errors);
    EXPECT_TRUE(status == 0 || status == 3) << kilobytes << ": " << status << errors;
  }
}

// A limit that another try finds as well is no reason to try again.
TEST_F(Trust, TooFewFileDescriptorsAreNoReasonToTryAgain) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  for (const char* limit : {"20", "24", "28"}) {
    const std::string shell = fmt::format("ulimit -n {} && exec \"$0\" \"$@\"", limit);
    Words launcher = test::mpirun(2);
    launcher.insert(launcher.end(), {"sh", "-c", shell});
    ChildProcess job(folder(), command(out(), {"--save-kv", (folder() / "kv").string()}),
                     test::mpirun_variables(), launcher);
    const int status = job.wait();
    EXPECT_NE(status, 75) << limit << ": " << job.errors();
    if (status == 4) {
      EXPECT_THAT(job.errors(), HasSubstr("Too many open files"));
    }
  }
  complete(out(), {});
  EXPECT_EQ(test::texts_of(out()), undisturbed_texts());
}

TEST_F(Trust, ASignalToAnyRankStopsTheJobCleanly) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const auto job = start_mpirun(3, out());
  wait_for_lines(*job, out(), 1);
  const pid_t rank = test::process_of_rank(job->pid(), 2);
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGTERM);
  const int status = job->wait();
  // It hears of it within a second; the job may be over by then.
  EXPECT_THAT(status, AnyOf(75, 0)) << job->errors();
  complete(out(), {"--ranks", "2"});
  EXPECT_EQ(test::texts_of(out()), undisturbed_texts());
}

TEST_F(Trust, ARankThatIsStoppedAtTheStartIsNamedInTime) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const auto job = start_mpirun(2, out(), {"--start-timeout", "4", "--dead-after", "2"});
  pid_t rank = -1;
  while (job->running() && rank < 0) rank = test::process_of_rank(job->pid(), 1);
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGSTOP);
  const int status = job->wait();
  EXPECT_EQ(status, 75) << job->errors();
  EXPECT_THAT(job->errors(),
              AnyOf(AllOf(HasSubstr("the ranks have not come together"), HasSubstr("rank 1 ")),
                    HasSubstr("rank 1 has not been heard of")));
  complete(out(), {});
}

}  // namespace
}  // namespace longhaul
