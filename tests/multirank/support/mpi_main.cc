// main() of tests under mpirun. Every rank runs every test; after each test all ranks' failures are
// gathered, rank 0 prints them, and every rank exits non-zero if any test failed on any rank. A
// test that hangs is named and ends the job (LONGHAUL_TEST_WATCHDOG_S, default 100 s).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "cluster/comm/communicator.h"
#include "cluster/comm/mpi_environment.h"
#include "tests/multirank/support/ranks_under_mpi.h"
#include "tests/multirank/support/watchdog.h"

namespace longhaul::test {
namespace {

std::chrono::milliseconds watchdog_limit() {
  const char* text = std::getenv("LONGHAUL_TEST_WATCHDOG_S");
  const double seconds = text != nullptr ? std::atof(text) : 100.0;
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

// Gathers what every rank's tests report.
class VerdictOfAllRanks : public testing::EmptyTestEventListener {
 public:
  explicit VerdictOfAllRanks(Communicator& comm)
      : comm_(comm), watchdog_("rank " + std::to_string(comm.rank()), watchdog_limit()) {}

  bool all_passed() const { return all_passed_; }

  void OnTestStart(const testing::TestInfo& test) override {
    failures_.clear();
    watchdog_.test_starts(name_of_test(test));
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    failures_ += std::string(result.file_name() != nullptr ? result.file_name() : "?") + ":" +
                 std::to_string(result.line_number()) + ": " + result.message() + "\n";
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const auto all = comm_.all_gather_varying(std::as_bytes(std::span(failures_)));
    watchdog_.test_ends();
    for (int r = 0; r < comm_.size(); ++r) {
      const auto& bytes = all[static_cast<std::size_t>(r)];
      if (bytes.empty()) continue;
      all_passed_ = false;
      if (comm_.rank() != 0 || r == 0) continue;  // rank 0's own are printed by GoogleTest
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      std::cout << "FAILED on rank " << r << ": " << name_of_test(test) << "\n"
                << text << std::flush;
    }
  }

 private:
  static std::string name_of_test(const testing::TestInfo& test) {
    return std::string(test.test_suite_name()) + "." + test.name();
  }

  Communicator& comm_;
  Watchdog watchdog_;
  std::string failures_;
  bool all_passed_ = true;
};

int run_all(int argc, char** argv) {
  MpiEnvironment mpi(&argc, &argv);
  CommunicatorConfig config;
  config.kind = CommunicatorKind::kMpi;
  config.default_deadline = 2 * watchdog_limit();
  std::unique_ptr<Communicator> comm = make_communicator(config);
  set_number_of_processes(comm->size());
  testing::InitGoogleTest(&argc, argv);  // after MPI: parameters depend on the number of ranks
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (comm->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto* verdict = new VerdictOfAllRanks(*comm);
  listeners.Append(verdict);  // owned by GoogleTest from here on
  const bool passed_here = RUN_ALL_TESTS() == 0;
  const bool passed = passed_here && verdict->all_passed();
  if (comm->rank() == 0 && !passed) std::cout << "FAILED on at least one rank" << std::endl;
  delete listeners.Release(verdict);
  comm->barrier();  // all have printed before any exit status ends the job
  comm.reset();
  return mpi.finish(passed ? 0 : 1);
}

}  // namespace
}  // namespace longhaul::test

int main(int argc, char** argv) { return longhaul::test::run_all(argc, argv); }
