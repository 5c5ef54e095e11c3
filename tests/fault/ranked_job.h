// A run of several ranks over small documents, for tests that disturb it: 24 requests about three
// documents, whose answers the example model finds surely, so that texts must be equal for any
// number of ranks.
#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tests/fault/child_process.h"
#include "tests/fault/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"

namespace longhaul::test {

// The process that is this rank of the mpirun with this process id; -1 when there is none.
pid_t process_of_rank(pid_t mpirun, int rank);

class RankedJob : public testing::Test {
 protected:
  static constexpr std::size_t kRequests = 24;

  RankedJob();

  const std::filesystem::path& folder() const { return folder_.path(); }
  Random& random() { return random_; }

  // Arguments of the program.
  Words command(const std::filesystem::path& output, const Words& more = {}) const;
  // Under mpirun; skip the test first where this build has none (LONGHAUL_SKIP_WITHOUT_MPIRUN).
  std::unique_ptr<ChildProcess> start_mpirun(int n_ranks, const std::filesystem::path& output,
                                             const Words& more = {}) const;
  // Runs the rest of the requests in one process, and expects that this works.
  void complete(const std::filesystem::path& output, const Words& more);
  // Of one rank that nobody disturbs; runs once for all tests of this program.
  const std::map<std::string, std::string>& undisturbed_texts();
  // Until the output has so many lines, and up to 50 ms more.
  void wait_for_lines(ChildProcess& process, const std::filesystem::path& output,
                      std::int64_t n_lines);
  // Until stderr has this text or the process ended.
  static void wait_for_message(ChildProcess& process, const std::string& text);

 private:
  TemporaryFolder folder_;
  Random random_{base_seed()};
};

}  // namespace longhaul::test
