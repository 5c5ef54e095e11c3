#include "cluster/comm/mpi_environment.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cluster/comm/mpi_check.h"

namespace longhaul {
namespace {

constexpr std::chrono::seconds kFinalizeDeadline{30};

// Ends the process unless told in time that all is well.
class FinalizeWatchdog {
 public:
  explicit FinalizeWatchdog(int exit_status)
      : thread_([this, exit_status] {
          std::unique_lock lock(mutex_);
          if (done_.wait_for(lock, kFinalizeDeadline, [this] { return is_done_; })) return;
          LONGHAUL_LOG(kWarning, kComm, "MPI_Finalize hangs; a peer has died. event=exit status={}",
                       exit_status);
          MpiEnvironment::exit_now(exit_status);
        }) {}
  ~FinalizeWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    done_.notify_one();
  }

 private:
  std::mutex mutex_;  // guards is_done_
  std::condition_variable done_;
  bool is_done_ = false;
  std::jthread thread_;
};

}  // namespace

void check_mpi(int result, std::string_view what, std::source_location where) {
  if (result == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ErrorCode::kMpi, fmt::format("{}: {}", what, text), where);
}

MpiEnvironment::MpiEnvironment(int* argc, char*** argv) {
  int provided = 0;
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

int MpiEnvironment::finish(int exit_status) {
  finished_ = true;
  const FinalizeWatchdog watchdog(exit_status);
  const int result = MPI_Finalize();
  if (result != MPI_SUCCESS) LONGHAUL_LOG(kWarning, kComm, "MPI_Finalize returned {}", result);
  return exit_status;
}

}  // namespace longhaul
