#include "tools/job/job_end.h"

#include <unistd.h>

#include <fmt/format.h>

#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/event_log.h"
#include "base/last_wait.h"
#include "base/print_stderr.h"
#include "cluster/comm/mpi_environment.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

bool is_of_ranks(ErrorCode code) {
  return code == ErrorCode::kPeerFailed || code == ErrorCode::kTimeout || code == ErrorCode::kMpi;
}

void print_error(std::string_view message) { print_stderr("longhaul: error: {}\n", message); }

int report_error(const Error& error, std::string_view after_loss) {
  if (!after_loss.empty() && is_of_ranks(error.code())) {
    print_error(fmt::format("{}; {}", error.what(), after_loss));
    return kExitStopped;
  }
  print_error(error.what());
  const int status = exit_status_of(error.code());
  if (status == kExitInternal)
    print_stderr("longhaul: ({}, {}:{})\n", name_of(error.code()), error.where().file_name(),
                 error.where().line());
  return status;
}

int print_failure(std::exception_ptr failure, std::string_view after_loss) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return report_error(error, after_loss);
  } catch (const std::bad_alloc&) {
    write_stderr(  // which takes no memory
        "longhaul: error: out of memory: take a shorter document, smaller types (--weights int8, "
        "--cache-type-k int8 --cache-type-v int8) or shorter chunks (--chunk-len)\n");
    return kExitDoesNotFit;
  } catch (const std::system_error& error) {  // of files, threads, fmt::print
    print_error(error.what());
    return kExitEnvironment;
  } catch (const std::exception& error) {
    print_stderr("longhaul: internal error: {}\n", error.what());
    return kExitInternal;
  }
}

// What is wrong with input may quote it, and events hold nothing of that.
void log_failure(std::exception_ptr failure, int status) {
  JsonObject members{{"status", status}};
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    const bool is_of_input =
        error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kCorruptData;
    members.emplace_back("code", std::string(name_of(error.code())));
    if (!is_of_input) members.emplace_back("message", error.what());
    members.emplace_back("source",
                         fmt::format("{}:{}", error.where().file_name(), error.where().line()));
  } catch (const std::exception& error) {
    members.emplace_back("message", error.what());
  }
  log_event("failed", std::move(members));
}

}  // namespace

int report_failure(std::exception_ptr failure, std::string_view after_loss) {
  const int status = print_failure(failure, after_loss);
  try {
    log_failure(failure, status);
  } catch (const std::exception&) {  // no memory or no disk is left for it
  }
  return status;
}

void JobEnd::end(const std::function<int()>& report) {
  ending_.lock();  // whoever comes second waits here until the process is gone
  // The process is gone after so long, whatever hangs.
  std::optional<LastWait> limit;
  try {
    limit.emplace(limits_.all, [] { _exit(kExitStopped); }).begin();
  } catch (const std::exception&) {  // without a thread or memory it has to end by itself
  }
  int status = kExitDoesNotFit;
  try {
    status = report();
    if (tell_) tell_();
  } catch (const std::exception&) {  // no memory is left to say why, or to tell others
  }
  // A writer that hangs in the disk must not keep the job alive.
  for (const Deadline end = deadline_in(limits_.writing);
       !writing_.try_lock() && Clock::now() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  MpiEnvironment::exit_now(status);
}

void JobEnd::fail(std::exception_ptr failure) {
  end([&] { return report_failure(failure, after_loss_); });
}

void JobEnd::fail(std::string_view message, std::string_view event) {
  const auto failure = std::make_exception_ptr(Error(ErrorCode::kPeerFailed, std::string(message)));
  end([&] {
    const int status = report_failure(failure, after_loss_);
    if (!event.empty()) log_event(event, {{"reason", std::string(message)}});
    return status;
  });
}

void JobEnd::leave(int status) {
  end([status] { return status; });
}

}  // namespace longhaul
