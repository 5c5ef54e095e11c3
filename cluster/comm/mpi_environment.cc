#include "cluster/comm/mpi_environment.h"

#include <fmt/format.h>
#include <sysexits.h>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/last_wait.h"
#include "base/log.h"
#include "base/print_stderr.h"
#include "cluster/comm/mpi_check.h"

namespace longhaul {
namespace {

// MPI has no deadlines of its own: a peer that hangs or has died holds it for ever.
void say_stuck(std::string_view what, std::chrono::seconds deadline, int status) noexcept {
  try {
    LONGHAUL_LOG(kError, kComm,
                 "{} has not returned for {} s; a peer has died or hangs. event=exit status={}",
                 what, deadline.count(), status);
  } catch (const std::exception&) {  // no memory is left to say it
  }
}

// Open MPI's mpirun reports 1 for a process that ends without MPI_Finalize and with 0; of one that
// calls MPI_Abort it reports the code, also 0.
[[noreturn]] void end_done_job() noexcept {
  std::optional<LastWait> limit;
  try {
    print_stderr(
        "longhaul: all is done, but a rank does not come to the end of MPI: the job ends without "
        "it\n");
    limit.emplace(std::chrono::seconds(5), [] { MpiEnvironment::exit_now(0); }).begin();
  } catch (const std::exception&) {
    MpiEnvironment::exit_now(0);
  }
  MPI_Abort(MPI_COMM_WORLD, 0);
  MpiEnvironment::exit_now(0);
}

}  // namespace

void check_mpi(int result, std::string_view what, std::source_location where) {
  if (result == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ErrorCode::kMpi, fmt::format("{}: {}", what, text), where);
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string whole(text);
  return whole.substr(0, whole.find(','));
}

MpiEnvironment::MpiEnvironment(int* argc, char*** argv, std::chrono::seconds deadline) {
  int provided = 0;
  LastWait watchdog(deadline, [deadline] {
    say_stuck("MPI_Init", deadline, EX_TEMPFAIL);
    exit_now(EX_TEMPFAIL);
  });
  watchdog.begin();
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("this MPI offers thread level {} only; MPI_THREAD_SERIALIZED ({}) is "
                            "needed: use an MPI that was built with thread support",
                            provided, static_cast<int>(MPI_THREAD_SERIALIZED)));
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiEnvironment::~MpiEnvironment() {
  if (finished_) return;
  if (std::uncaught_exceptions() > 0) {
    LONGHAUL_LOG(kWarning, kComm, "MPI is left without MPI_Finalize, after a failure");
    return;
  }
  finish(0);
}

int MpiEnvironment::finish(const MpiEnding& ending, const std::function<void()>& free_all) {
  finished_ = true;
  LastWait watchdog(ending.limit, [ending] {
    say_stuck("MPI_Finalize", ending.limit, ending.status_if_stuck);
    if (ending.ends_others && ending.status_if_stuck == 0) end_done_job();
    exit_now(ending.status_if_stuck);
  });
  watchdog.begin();
  if (free_all) free_all();
  const int result = MPI_Finalize();
  if (result != MPI_SUCCESS) LONGHAUL_LOG(kWarning, kComm, "MPI_Finalize returned {}", result);
  return ending.status;
}

}  // namespace longhaul
