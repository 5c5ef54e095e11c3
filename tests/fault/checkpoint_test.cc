// `longhaul run` interrupted while it reads a document, and started again on other ranks: it goes
// on from the last checkpoint, and the answers are those of a run that nobody disturbed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The three documents of RankedJob as one, with prose between, and eight questions about it.
class CheckpointedJob : public RankedJob {
 protected:
  CheckpointedJob() {
    const std::string prose =
        read_file(source_path("examples/needle/documents/harbour_log.txt"), 1 << 20)
            .substr(0, 12000);
    std::string text;
    for (int i = 0; i < 3; ++i)
      text += read_file(folder() / fmt::format("{}.txt", i), 1 << 20) + prose;
    const std::string all = read_file(folder() / "requests.jsonl", 1 << 20);
    std::string requests;
    std::size_t begin = 0;
    for (int i = 0; i < 8; ++i) {
      const std::size_t end = all.find('\n', begin) + 1;
      std::string line = all.substr(begin, end - begin);
      const std::size_t at = line.find("\"path\":\"") + 8;
      line[at] = 'w';  // of w.txt
      requests += line;
      begin = end;
    }
    replace_file(folder() / "w.txt", text);
    replace_file(folder() / "requests.jsonl", requests);
  }
  fs::path checkpoints() const { return folder() / "out.checkpoints"; }
  fs::path output() const { return folder() / "out.jsonl"; }
  static Words every(const char* interval, const char* n_ranks) {
    return {"--checkpoint-every", interval, "--ranks", n_ranks};
  }
  std::map<std::string, std::string> undisturbed() {
    const fs::path path = folder() / "undisturbed.jsonl";
    complete(path, {"--checkpoint-every", "never"});
    return texts_of(path);
  }
  // Tokens of the document that are saved; 0 when none are.
  std::int64_t n_saved() const {
    const auto masters = saved_masters(checkpoints());
    return masters.empty() ? 0 : read_saved_header(masters.front()).n_tokens;
  }
  // Until more of the document is saved than before, or the process ended, and a moment longer.
  void wait_for_more(ChildProcess& process, std::int64_t before) {
    while (process.running() && n_saved() <= before)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(random().integer(0, 60)));
  }
};

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
    for (const fs::path& master : saved_masters(checkpoints())) {
      const SavedHeader header = read_saved_header(master);
      for (const WrittenFile& part : header.parts) check_part(header, part);
    }
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
