// `longhaul run` under mpirun that loses a rank, or is told to stop, while it reads a document, and
// goes on with more ranks or fewer that differ from one another; and checkpoints on a disk that
// becomes full.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>

#include "base/file.h"
#include "tests/fault/checkpointed_job.h"
#include "tests/fault/result_files.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kEvery = 2;       // chunks
constexpr std::int64_t kChunkLen = 256;  // of RankedJob

class CheckpointRanks : public CheckpointedJob {
 protected:
  // Ranks that differ: one is slow, one has no room for a block of a head that keeps every token,
  // where there are more than one.
  fs::path lopsided(int n_ranks, const char* tight = "9 MiB") const {
    std::string text = "headroom = 0.0\n";
    for (int i = 0; i < n_ranks; ++i) {
      text += fmt::format("[[node]]\nname = \"n{}\"\nmemory = \"{}\"\ngflops = {}\ngb_per_s = {}\n",
                          i, i == 0 || i + 1 < n_ranks ? "64 MiB" : tight, i == 1 ? 4.0 : 20.0,
                          i == 1 ? 2.0 : 10.0);
    }
    const fs::path path = folder() / fmt::format("lopsided-{}-{}.toml", n_ranks, tight[0]);
    replace_file(path, text);
    return path;
  }
  std::unique_ptr<ChildProcess> start(int n_ranks) const {
    return start_mpirun(n_ranks, output(),
                        {"--cluster", lopsided(n_ranks).string(), "--checkpoint-every",
                         std::to_string(kEvery), "--dead-after", "2"});
  }
  // Sends the signal to one rank when more is saved than before; the job ends by it.
  void disturb(int n_ranks, int number, std::int64_t before) {
    const auto job = start(n_ranks);
    wait_for_more(*job, before);
    const pid_t victim =
        process_of_rank(job->pid(), static_cast<int>(random().integer(0, n_ranks - 1)));
    ASSERT_GT(victim, 0) << job->errors();
    ::kill(victim, number);
    const int status = job->wait();
    EXPECT_THAT(status, testing::AnyOf(75, number == SIGKILL ? 128 + SIGKILL : 75))
        << job->errors();
    expect_went_on(job->errors(), before);
    expect_whole();
    EXPECT_GE(n_saved(), before);
  }
  void expect_went_on(const std::string& printed, std::int64_t before) {
    if (before == 0) return;
    EXPECT_THAT(printed, HasSubstr(fmt::format("{} from", before)));
    const std::int64_t n_twice = n_read_twice(printed);
    EXPECT_GE(n_twice, 0) << printed;
    EXPECT_LE(n_twice, kEvery * kChunkLen) << "more than one interval was read twice\n" << printed;
  }
};

TEST_F(CheckpointRanks, AnyRankIsKilledAndOthersGoOnWhereItWas) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const auto want = undisturbed();
  disturb(3, SIGKILL, 0);
  disturb(2, SIGKILL, n_saved());
  disturb(5, SIGUSR1, n_saved());
  disturb(3, SIGTERM, n_saved());
  const std::int64_t before = n_saved();
  EXPECT_GT(before, 0);
  const auto job = start(1);
  EXPECT_EQ(job->wait(), 0) << job->errors();
  expect_went_on(job->errors(), before);
  EXPECT_EQ(texts_of(output()), want);
  EXPECT_FALSE(fs::exists(checkpoints())) << "files that nobody needs any more";
}

TEST_F(CheckpointRanks, RanksThatAreLeftHoldItOrSayWhatIsMissing) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  disturb(3, SIGKILL, 0);
  const std::int64_t before = n_saved();
  ASSERT_GT(before, 0);
  // Two ranks without room: the job says by how much, and the checkpoint stays.
  const fs::path cluster = folder() / "too-small.toml";
  replace_file(cluster, "headroom = 0.0\n[[node]]\nmemory = \"6 MiB\"\nranks = 2\n");
  const auto refused = start_mpirun(
      2, output(), {"--cluster", cluster.string(), "--checkpoint-every", std::to_string(kEvery)});
  EXPECT_EQ(refused->wait(), 3) << refused->errors();
  EXPECT_THAT(refused->errors(),
              AllOf(HasSubstr("It does not fit: "), HasSubstr(" are missing over all ranks")));
  EXPECT_EQ(n_saved(), before);
  const auto job = start(2);
  EXPECT_EQ(job->wait(), 0) << job->errors();
  expect_went_on(job->errors(), before);
  EXPECT_EQ(texts_of(output()), undisturbed());
}

// The program on a file system of its own for the checkpoints, which holds a few of them.
Words on_small_disk(const fs::path& folder) {
  return {
      "unshare",      "--mount", "--map-root-user",
      "sh",           "-c",      "mount -t tmpfs -o size=4m none \"$0\" || exit 99; exec \"$@\"",
      folder.string()};
}

TEST_F(CheckpointRanks, AFullDiskCostsCheckpointsAndNotTheRun) {
  const auto want = undisturbed();
  fs::create_directory(checkpoints());
  ChildProcess process(folder(), command(output(), every("2", "2")), {},
                       on_small_disk(checkpoints()));
  const int status = process.wait();
  if (status == 99 || process.errors().starts_with("unshare:"))
    GTEST_SKIP() << "skipped: no small file system can be mounted here: " << process.errors();
  EXPECT_EQ(status, 0) << process.errors();
  EXPECT_THAT(process.errors(), AllOf(HasSubstr("no more checkpoints are saved, the run goes on: "),
                                      HasSubstr("free some"), HasSubstr("checkpoints in ")))
      << "some were saved, then the disk was full";
  EXPECT_EQ(texts_of(output()), want);
}

}  // namespace
}  // namespace longhaul::test
