// A rank that is killed or stops in the middle of a run of several ranks: the job ends within its
// deadline, says who it was, and leaves whole results that another number of ranks completes with
// the same texts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::count_lines;
using test::process_of_rank;
using test::texts_of;
using testing::AnyOf;
using testing::HasSubstr;

class LostRank : public test::RankedJob {};

TEST_F(LostRank, KillingAProcessOfThreadsLosesNothingForAnyNumberOfRanks) {
  const auto& want = undisturbed_texts();
  ASSERT_EQ(want.size(), kRequests);
  EXPECT_EQ(want.at("request-23"), " 974428.") << "the model found its record";
  const fs::path output = folder() / "killed.jsonl";
  for (const char* n_ranks : {"3", "2"}) {
    ChildProcess process(folder(), command(output, {"--ranks", n_ranks}));
    wait_for_lines(process, output, count_lines(output) + random().integer(1, 6));
    process.signal(SIGKILL);
    process.wait();
  }
  complete(output, {"--ranks", "4"});
  EXPECT_EQ(texts_of(output), want);
}

TEST_F(LostRank, ASignalEndsAJobOfThreadsCleanly) {
  const fs::path output = folder() / "stopped.jsonl";
  ChildProcess process(folder(), command(output, {"--ranks", "3"}));
  wait_for_lines(process, output, 2);
  process.signal(SIGUSR1);
  EXPECT_EQ(process.wait(), 75) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("run the same command again to go on"));
  complete(output, {"--ranks", "2", "--replicas", "2"});
  EXPECT_EQ(texts_of(output), undisturbed_texts());
}

// What the job is doing when a rank is lost.
enum class Moment { kProbing, kReading, kAnswering, kEnding };

struct Loss {
  int victim;
  int signal;
};

class LostProcess : public LostRank, public testing::WithParamInterface<Moment> {
 protected:
  void await(Moment moment, ChildProcess& mpirun, const fs::path& output) {
    switch (moment) {
      case Moment::kProbing:
        return wait_for_message(mpirun, "longhaul 0.");
      case Moment::kReading:  // weights and the first document
        wait_for_message(mpirun, "plan ");
        std::this_thread::sleep_for(std::chrono::milliseconds(random().integer(0, 100)));
        return;
      case Moment::kAnswering:
        return wait_for_lines(mpirun, output, random().integer(1, 6));
      case Moment::kEnding:
        while (mpirun.running() && count_lines(output) < std::int64_t{kRequests}) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
  }
  // All, or two that the seed chooses.
  std::vector<Loss> losses() {
    std::vector<Loss> all;
    for (int rank = 0; rank < kRanks; ++rank) {
      all.push_back({rank, SIGKILL});
      all.push_back({rank, SIGSTOP});
    }
    std::shuffle(all.begin(), all.end(), random().engine());
    if (test::intensity() < 4) all.resize(2);
    return all;
  }
  void lose(Moment moment, const Loss& loss);

  static constexpr int kRanks = 3;
};

void LostProcess::lose(Moment moment, const Loss& loss) {
  const std::string name = fmt::format("rank {} gets signal {}", loss.victim, loss.signal);
  SCOPED_TRACE(name);
  const fs::path output = folder() / (name + ".jsonl");
  const auto mpirun = start_mpirun(kRanks, output, {"--dead-after", "2"});
  await(moment, *mpirun, output);
  const pid_t victim = process_of_rank(mpirun->pid(), loss.victim);
  if (moment != Moment::kEnding) {
    ASSERT_GT(victim, 0) << mpirun->errors();
  }
  if (victim > 0) ::kill(victim, loss.signal);
  if (moment == Moment::kEnding && loss.signal == SIGSTOP && victim > 0) {
    // A process that stops after its part in MPI_Finalize is waited for by mpirun alone.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    ::kill(victim, SIGCONT);
  }
  const Stopwatch watch;
  const int status = mpirun->wait();
  // Two seconds of silence, and what a busy machine and mpirun's own clearing up take.
  EXPECT_LT(watch.seconds(), 20) << mpirun->errors();
  // mpirun reports the rank that was killed before it looks at the others' exit statuses.
  const int job_status = loss.signal == SIGKILL ? 128 + SIGKILL : 75;
  if (moment != Moment::kEnding || status != 0) {
    EXPECT_THAT(status, AnyOf(75, job_status)) << mpirun->errors();
    EXPECT_THAT(mpirun->errors(),
                AnyOf(HasSubstr(fmt::format("error: rank {} is gone", loss.victim)),
                      HasSubstr(fmt::format("error: rank {} has not been heard of", loss.victim)),
                      HasSubstr(fmt::format("has lost the coordinator, rank {} on ", loss.victim)),
                      HasSubstr(fmt::format("process rank {} with PID", loss.victim))));
  }
  complete(output, {"--ranks", "2"});
  EXPECT_EQ(texts_of(output), undisturbed_texts());
}

TEST_P(LostProcess, IsNamedWithinTheDeadlineAndTheRestCompletesElsewhere) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  for (const Loss& loss : losses()) lose(GetParam(), loss);
}

std::string name_of(Moment moment) {
  switch (moment) {
    case Moment::kProbing:
      return "Probing";
    case Moment::kReading:
      return "Reading";
    case Moment::kAnswering:
      return "Answering";
    case Moment::kEnding:
      return "Ending";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(While, LostProcess,
                         testing::Values(Moment::kProbing, Moment::kReading, Moment::kAnswering,
                                         Moment::kEnding),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_F(LostRank, MpirunRunsAJobWithTheTextsOfOneRank) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const fs::path output = folder() / "mpi.jsonl";
  const fs::path report = folder() / "report.json";
  const auto mpirun = start_mpirun(3, output, {"--report", report.string()});
  EXPECT_EQ(mpirun->wait(), 0) << mpirun->errors();
  EXPECT_EQ(texts_of(output), undisturbed_texts());
  EXPECT_THAT(read_file(report, 1 << 20), HasSubstr(R"("rank":2,)"));
}

// Few questions find their answer by three tokens that stood before; two are enough.
TEST_F(LostRank, GuessesGiveTheTextsOfARunWithoutThem) {
  for (const char* n_ranks : {"1", "3"}) {
    const fs::path output = folder() / fmt::format("guessed-{}.jsonl", n_ranks);
    test::Words words =
        command(output, {"--ranks", n_ranks, "--draft-max", "8", "--prompt-lookup-min", "2"});
    std::erase(words, "--no-progress");
    ChildProcess process(folder(), words);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    EXPECT_THAT(process.errors(), HasSubstr(" guesses came true"));
    EXPECT_EQ(texts_of(output), undisturbed_texts());
  }
}

// The model as its own draft model, which reads too little to be right always.
TEST_F(LostRank, ADraftModelGivesTheTextsOfARunWithoutIt) {
  for (const char* n_ranks : {"1", "3"}) {
    const fs::path output = folder() / fmt::format("drafted-{}.jsonl", n_ranks);
    test::Words words =
        command(output, {"--ranks", n_ranks, "--draft-model", test::example_path("model").string(),
                         "--draft-context", "256"});
    std::erase(words, "--no-progress");
    ChildProcess process(folder(), words);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    EXPECT_THAT(process.errors(), HasSubstr("draft model: "));
    EXPECT_THAT(process.errors(), HasSubstr(" drafted in "));
    EXPECT_EQ(texts_of(output), undisturbed_texts());
  }
}

TEST_F(LostRank, ADraftModelWithOtherTokensIsRefused) {
  const fs::path other = folder() / "other";
  fs::copy(test::example_path("model"), other);
  std::string tokenizer = read_file(other / "tokenizer.json", 1 << 20);
  for (const auto& [own, others] :
       {std::pair{"the\": 267", "the\": 268"}, {"en\": 268", "en\": 267"}})
    tokenizer.replace(tokenizer.find(own), std::string_view(own).size(), others);
  replace_file(other / "tokenizer.json", tokenizer);
  ChildProcess process(folder(),
                       command(folder() / "none.jsonl", {"--draft-model", other.string()}));
  EXPECT_NE(process.wait(), 0);
  EXPECT_THAT(process.errors(), HasSubstr("its tokenizer differs: token 267 is \"en\" there"));
}

TEST_F(LostRank, MpirunChoosesTokensAndPagesAsOneRankDoes) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  int number = 0;
  for (const char* method : {"snapkv:capacity=96,window=8,after=prompt",
                             "h2o:capacity=128,recent=64", "quest:budget=64,dense=0"}) {
    SCOPED_TRACE(method);
    const test::Words heads = {"--full-heads", method, "--weights", "f32"};
    const fs::path alone = folder() / fmt::format("alone-{}.jsonl", number);
    const fs::path together = folder() / fmt::format("together-{}.jsonl", number++);
    complete(alone, heads);
    const auto mpirun = start_mpirun(3, together, heads);
    EXPECT_EQ(mpirun->wait(), 0) << mpirun->errors();
    EXPECT_EQ(texts_of(together).size(), kRequests);
    EXPECT_EQ(texts_of(together), texts_of(alone));
  }
}

TEST_F(LostRank, MpirunHandsOnAnInputErrorOfRankZero) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  replace_file(folder() / "requests.jsonl", "not json\n");
  const auto mpirun = start_mpirun(2, folder() / "none.jsonl");
  EXPECT_EQ(mpirun->wait(), 5) << mpirun->errors();
  EXPECT_THAT(mpirun->errors(), HasSubstr("nothing was run"));
  EXPECT_THAT(mpirun->errors(), testing::Not(HasSubstr("is gone")));
}

TEST_F(LostRank, MpirunHandsOnThatNothingFits) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const fs::path cluster = folder() / "small.toml";
  replace_file(cluster, "[[node]]\nmemory = \"5 MiB\"\nranks = 2\n");
  const auto mpirun = start_mpirun(2, folder() / "none.jsonl", {"--cluster", cluster.string()});
  EXPECT_EQ(mpirun->wait(), 3) << mpirun->errors();
  EXPECT_THAT(mpirun->errors(), HasSubstr("It does not fit"));
  EXPECT_THAT(mpirun->errors(), testing::Not(HasSubstr("is gone")));
}

}  // namespace
}  // namespace longhaul
