// How something ended, as all ranks shall see it: well, or with the failure of one named rank. And
// the flag by which one rank's failure reaches threads that wait.
#pragma once
#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "base/error.h"

namespace longhaul {

struct Verdict {
  bool ok = true;
  int rank = -1;  // of the job: who failed
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  bool operator==(const Verdict&) const = default;
};

inline Verdict failed(int rank, ErrorCode code, std::string message) {
  return {.ok = false, .rank = rank, .code = code, .message = std::move(message)};
}
// What an exception says; exceptions other than Error become kInternal (std::bad_alloc:
// kOutOfMemory).
Verdict verdict_of(std::exception_ptr error, int rank);
// Throws Error with the verdict's code and "rank 2: <message>", unless it is ok.
void throw_if_failed(const Verdict& verdict);

// An error code that came over a wire: one that exists, else kInternal.
ErrorCode error_code_from_wire(int number);

// Raised once, by the first failure; stays raised. Thread-safe.
class FailureFlag {
 public:
  // False if it was raised before; the first verdict stays.
  bool raise(const Verdict& verdict);
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  Verdict verdict() const;  // ok unless raised

 private:
  std::atomic<bool> raised_ = false;
  mutable std::mutex mutex_;  // guards verdict_
  Verdict verdict_;
};

}  // namespace longhaul
