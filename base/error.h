// The one exception class of Longhaul and the checks that throw it. A message says what is wrong,
// where (file, field, offset, rank) and what to do; the code decides the program's exit status.
// Expected outcomes are values, not errors.
#pragma once
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace longhaul {

enum class ErrorCode {
  kInvalidArgument,     // a caller's or user's mistake: flag, request, argument
  kFailedPrecondition,  // the call came at the wrong time
  kOutOfMemory,
  kUnsupported,  // valid, but not in this build or on this machine, or of a kind that is not read
  kCorruptData,  // a file or message breaks its format
  kIo,
  kTimeout,
  kCancelled,
  kPeerFailed,
  kCuda,
  kNccl,
  kMpi,
  kInternal,
};

// "invalid argument", "corrupt data", ... for logs and result files.
std::string_view name_of(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message,
        std::source_location where = std::source_location::current());
  ErrorCode code() const { return code_; }
  const std::source_location& where() const { return where_; }

 private:
  ErrorCode code_;
  std::source_location where_;
};

// Throws kInvalidArgument with `message` unless `condition`. Always on: for callers' mistakes,
// never for hot loops.
inline void require(bool condition, std::string_view message,
                    std::source_location where = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument, std::string(message), where);
  }
}

// Throws kIo: "<what> <path>: <text of errno>".
[[noreturn]] void throw_errno(std::string_view what, const std::string& path,
                              std::source_location where = std::source_location::current());

}  // namespace longhaul

// Invariants of the code itself; checked in builds without NDEBUG only. User input never reaches
// one.
#ifdef NDEBUG
#define LONGHAUL_ASSERT(condition) static_cast<void>(0)
#else
#define LONGHAUL_ASSERT(condition)                                         \
  ((condition) ? static_cast<void>(0)                                      \
               : throw ::longhaul::Error(::longhaul::ErrorCode::kInternal, \
                                         "broken invariant: " #condition))
#endif
