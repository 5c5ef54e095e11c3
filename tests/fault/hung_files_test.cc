// Files on a disk or a server that does not answer: a signal ends the job at once, a limit ends it
// without one, and both say which file it was.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Words;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kStopped = 75;
constexpr double kSoon = 25;  // seconds, on a busy machine; the waits would be for hours
const Words kLimit = {"--step-timeout", "8"};  // which steps keep on a busy machine

class HungFiles : public test::RankedJob {
 protected:
  void SetUp() override {
#if defined(LONGHAUL_SANITIZES_ADDRESS) || defined(LONGHAUL_SANITIZES_THREADS)
    GTEST_SKIP() << "skipped: sanitizers want to be loaded first";
#endif
  }
  // How the call of a file that ends so hangs, after so many that did not.
  static Words hanging(const std::string& call, const std::string& path, int after = 0) {
    return {"LD_PRELOAD=" LONGHAUL_HANG_FILES, "HANG_CALL=" + call, "HANG_PATH=" + path,
            fmt::format("HANG_AFTER={}", after)};
  }
  // A run that is told to stop when it hangs.
  std::string errors_of_stopped(const Words& variables) {
    ChildProcess process(folder(), command(output()), variables);
    wait_for_message(process, "hangs\n");
    const Stopwatch watch;
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), kStopped) << process.errors();
    EXPECT_LT(watch.seconds(), kSoon);
    return process.errors();
  }
  fs::path output() const { return folder() / "out.jsonl"; }
};

TEST_F(HungFiles, OfAModelEndWithASignal) {
  EXPECT_THAT(errors_of_stopped(hanging("open", "model/config.json")), HasSubstr("stopped before"));
}

TEST_F(HungFiles, OfADocumentThatIsHashedEndWithASignal) {
  EXPECT_THAT(errors_of_stopped(hanging("open", "1.txt")), HasSubstr("stopped while reading"));
}

// It was read once to be hashed, and held the run when it was read to be answered about.
TEST_F(HungFiles, OfADocumentThatIsTokenisedEndWithASignal) {
  EXPECT_THAT(errors_of_stopped(hanging("open", "1.txt", 1)),
              HasSubstr("run the same command again"));
  complete(output(), {});
  EXPECT_EQ(test::texts_of(output()), undisturbed_texts());
}

TEST_F(HungFiles, ADocumentThatIsNotReadInTimeFailsItsOwnRequestsAlone) {
  ChildProcess process(folder(), command(output(), kLimit), hanging("open", "1.txt", 1));
  EXPECT_EQ(process.wait(), 1) << process.errors();
  EXPECT_EQ(test::texts_of(output()).size(), kRequests / 3 * 2);
  EXPECT_THAT(read_file(folder() / "out.errors.jsonl", 1 << 20),
              AllOf(HasSubstr("1.txt has not been read for "), HasSubstr("(--step-timeout)")));
}

TEST_F(HungFiles, OfResultsEndTheJobAtTheLimit) {
  ChildProcess process(folder(), command(output(), kLimit), hanging("fdatasync", "out.jsonl", 3));
  EXPECT_EQ(process.wait(), kStopped) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("out.jsonl has not been written for "));
  complete(output(), {});
  EXPECT_EQ(test::texts_of(output()), undisturbed_texts());
}

TEST_F(HungFiles, OfTheModelOnAnotherRankEndTheJobAtTheLimit) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  Words variables = test::mpirun_variables();
  for (const std::string& variable : hanging("open", "model/config.json"))
    variables.push_back(variable);
  variables.emplace_back("HANG_RANK=1");
  ChildProcess mpirun(folder(), command(output(), kLimit), variables, test::mpirun(2));
  EXPECT_EQ(mpirun.wait(), kStopped) << mpirun.errors();
  EXPECT_THAT(mpirun.errors(), HasSubstr("the model on rank 1 has not been read for "));
}

}  // namespace
}  // namespace longhaul
