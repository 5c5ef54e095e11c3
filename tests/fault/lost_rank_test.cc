// A rank that is killed or stops in the middle of a run of several ranks: the job ends within its
// deadline, says who it was, and leaves whole results that another number of ranks completes with
// the same texts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
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
using testing::AnyOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr std::size_t kRequests = 24;
constexpr int kDocuments = 3;

Words split(const std::string& text, char separator) {
  Words words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) words.push_back(word);
  return words;
}

// Of a file of /proc, which has no size of its own.
std::string kernel_text(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool has_line(const std::string& text, const std::string& line, char separator) {
  const Words lines = split(text, separator);
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// The process that is this rank of the mpirun with this process id; -1 when there is none.
pid_t process_of_rank(pid_t mpirun, int rank) {
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (has_line(kernel_text(entry.path() / "status"), fmt::format("PPid:\t{}", mpirun), '\n') &&
        has_line(kernel_text(entry.path() / "environ"),
                 fmt::format("OMPI_COMM_WORLD_RANK={}", rank), '\0')) {
      return std::stoi(name);
    }
  }
  return -1;
}

// Records that the example model finds surely: names that share no word, so that a text does not
// hang on the last bits of a sum.
constexpr std::array<std::string_view, kRequests> kNames = {
    "amber falcon",   "silver river",   "golden castle",   "crimson garden", "violet lantern",
    "azure mirror",   "scarlet anchor", "ivory badger",    "copper beacon",  "bronze bridge",
    "emerald canyon", "cobalt cedar",   "jade comet",      "coral compass",  "indigo cottage",
    "maroon dolphin", "rapid dragon",   "noble eagle",     "frozen ember",   "gentle engine",
    "silent feather", "eager forest",   "hidden fountain", "ancient glacier"};

// Prose of the example document, without its own records, with eight of ours.
std::string document(int number) {
  const Words sentences = split(
      read_file(test::source_path("examples/needle/documents/harbour_log.txt"), 1 << 20), '.');
  std::string text;
  std::size_t at = static_cast<std::size_t>(number) * 60;
  for (std::size_t record = 0; record < kRequests / kDocuments; ++record) {
    for (int i = 0; i < 3; ++at) {
      if (sentences[at].find("code") != std::string::npos) continue;
      text += sentences[at] + ".";
      ++i;
    }
    const std::size_t name = record * kDocuments + static_cast<std::size_t>(number);
    text += fmt::format(" The access code of {} is {}.", kNames[name], 104729 + 37813 * name);
  }
  return text;
}

class LostRank : public testing::Test {
 protected:
  LostRank() {
    for (int i = 0; i < kDocuments; ++i)
      replace_file(folder_.path() / fmt::format("{}.txt", i), document(i));
    std::string requests;
    for (std::size_t i = 0; i < kRequests; ++i) {
      requests += fmt::format(
          R"({{"custom_id":"request-{}","method":"POST","url":"/v1/completions","body":)"
          R"({{"prompt":"\nQuestion: What is the access code of {}?\nAnswer:","max_tokens":12,)"
          R"("documents":[{{"path":"{}.txt"}}]}}}})"
          "\n",
          i, kNames[i], i % kDocuments);
    }
    replace_file(folder_.path() / "requests.jsonl", requests);
  }

  Words command(const fs::path& output, const Words& more = {}) const {
    Words words = {"run",
                   "-m",
                   test::source_path("examples/needle/model").string(),
                   "--head-profile",
                   test::source_path("examples/needle/profile").string(),
                   "-i",
                   (folder_.path() / "requests.jsonl").string(),
                   "-o",
                   output.string(),
                   "--parallel",
                   "2",
                   "--chunk-len",
                   "256",
                   "--threads",
                   "1",
                   "--no-progress"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void complete(const fs::path& output, const Words& more) {
    ChildProcess process(folder_.path(), command(output, more));
    EXPECT_EQ(process.wait(), 0) << process.errors();
  }
  std::map<std::string, std::string> undisturbed_texts() {
    const fs::path output = folder_.path() / "undisturbed.jsonl";
    complete(output, {});
    return texts_of(output);
  }
  void wait_for_lines(ChildProcess& process, const fs::path& output, std::int64_t n_lines) {
    while (process.running() && count_lines(output) < n_lines)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(random_.integer(0, 50)));
  }

  test::TemporaryFolder folder_;
  test::Random random_{test::base_seed()};
};

TEST_F(LostRank, KillingAProcessOfThreadsLosesNothingForAnyNumberOfRanks) {
  const auto want = undisturbed_texts();
  ASSERT_EQ(want.size(), kRequests);
  EXPECT_EQ(want.at("request-23"), " 974428.") << "the model found its record";
  const fs::path output = folder_.path() / "killed.jsonl";
  for (const char* n_ranks : {"3", "2"}) {
    ChildProcess process(folder_.path(), command(output, {"--ranks", n_ranks}));
    wait_for_lines(process, output, count_lines(output) + random_.integer(1, 6));
    process.signal(SIGKILL);
    process.wait();
  }
  complete(output, {"--ranks", "4"});
  EXPECT_EQ(texts_of(output), want);
}

TEST_F(LostRank, ASignalEndsAJobOfThreadsCleanly) {
  const fs::path output = folder_.path() / "stopped.jsonl";
  ChildProcess process(folder_.path(), command(output, {"--ranks", "3"}));
  wait_for_lines(process, output, 2);
  process.signal(SIGUSR1);
  EXPECT_EQ(process.wait(), 75) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("run the same command again to go on"));
  complete(output, {"--ranks", "2", "--replicas", "2"});
  EXPECT_EQ(texts_of(output), undisturbed_texts());
}

#ifdef LONGHAUL_TEST_MPIEXEC
struct Loss {
  int victim;
  int signal;
  const char* says;  // in the message
};

class LostProcess : public LostRank, public testing::WithParamInterface<Loss> {};

TEST_P(LostProcess, IsNamedWithinTheDeadlineAndTheRestCompletesElsewhere) {
  const Loss& loss = GetParam();
  Words launcher = split(LONGHAUL_TEST_MPIEXEC, ' ');
  launcher.push_back("3");
  const fs::path output = folder_.path() / "lost.jsonl";
  ChildProcess mpirun(folder_.path(), command(output, {"--dead-after", "2"}),
                      {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, launcher);
  wait_for_lines(mpirun, output, random_.integer(1, 6));
  ASSERT_TRUE(mpirun.running()) << mpirun.errors();
  const pid_t victim = process_of_rank(mpirun.pid(), loss.victim);
  if (victim < 0) GTEST_SKIP() << "skipped: this mpirun does not show which process is which rank";
  ASSERT_EQ(::kill(victim, loss.signal), 0);
  const Stopwatch watch;
  const int status = mpirun.wait();
  // Two seconds of silence, and what a busy machine and mpirun's own clearing up take.
  EXPECT_LT(watch.seconds(), 20) << mpirun.errors();
  // mpirun reports the rank that was killed before it looks at the others' exit statuses.
  EXPECT_THAT(status, AnyOf(75, loss.signal == SIGKILL ? 128 + SIGKILL : 75)) << mpirun.errors();
  EXPECT_THAT(mpirun.errors(), HasSubstr(loss.says));
  complete(output, {"--ranks", "2"});
  EXPECT_EQ(texts_of(output), undisturbed_texts());
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostProcess,
                         testing::Values(Loss{2, SIGKILL, "error: rank 2 is gone"},
                                         Loss{1, SIGSTOP, "error: rank 1 has not been heard of"},
                                         Loss{0, SIGKILL, "has lost the coordinator, rank 0 on "},
                                         Loss{0, SIGSTOP, "has lost the coordinator, rank 0 on "}),
                         [](const testing::TestParamInfo<Loss>& loss) {
                           return fmt::format("Rank{}{}", loss.param.victim,
                                              loss.param.signal == SIGKILL ? "Killed" : "Stopped");
                         });

TEST_F(LostRank, MpirunRunsAJobWithTheTextsOfOneRank) {
  Words launcher = split(LONGHAUL_TEST_MPIEXEC, ' ');
  launcher.push_back("3");
  const fs::path output = folder_.path() / "mpi.jsonl";
  const fs::path report = folder_.path() / "report.json";
  ChildProcess mpirun(folder_.path(), command(output, {"--report", report.string()}),
                      {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, launcher);
  EXPECT_EQ(mpirun.wait(), 0) << mpirun.errors();
  EXPECT_EQ(texts_of(output), undisturbed_texts());
  EXPECT_THAT(read_file(report, 1 << 20), HasSubstr(R"("rank":2,)"));
}

TEST_F(LostRank, MpirunHandsOnAnInputErrorOfRankZero) {
  Words launcher = split(LONGHAUL_TEST_MPIEXEC, ' ');
  launcher.push_back("2");
  replace_file(folder_.path() / "requests.jsonl", "not json\n");
  ChildProcess mpirun(folder_.path(), command(folder_.path() / "none.jsonl"),
                      {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, launcher);
  EXPECT_EQ(mpirun.wait(), 5) << mpirun.errors();
  EXPECT_THAT(mpirun.errors(), HasSubstr("nothing was run"));
  EXPECT_THAT(mpirun.errors(), testing::Not(HasSubstr("is gone")));
}

TEST_F(LostRank, MpirunHandsOnThatNothingFits) {
  Words launcher = split(LONGHAUL_TEST_MPIEXEC, ' ');
  launcher.push_back("2");
  const fs::path cluster = folder_.path() / "small.toml";
  replace_file(cluster, "[[node]]\nmemory = \"5 MiB\"\nranks = 2\n");
  ChildProcess mpirun(folder_.path(),
                      command(folder_.path() / "none.jsonl", {"--cluster", cluster.string()}),
                      {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, launcher);
  EXPECT_EQ(mpirun.wait(), 3) << mpirun.errors();
  EXPECT_THAT(mpirun.errors(), HasSubstr("It does not fit"));
  EXPECT_THAT(mpirun.errors(), testing::Not(HasSubstr("is gone")));
}
#else
TEST_F(LostRank, UnderMpirun) { GTEST_SKIP() << "skipped: this build has no MPI"; }
#endif

}  // namespace
}  // namespace longhaul
