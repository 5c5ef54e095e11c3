#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace longhaul {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kFailedPrecondition:
      return "failed precondition";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptData:
      return "corrupt data";
    case ErrorCode::kIo:
      return "input/output error";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kPeerFailed:
      return "peer failed";
    case ErrorCode::kCuda:
      return "CUDA error";
    case ErrorCode::kNccl:
      return "NCCL error";
    case ErrorCode::kMpi:
      return "MPI error";
    case ErrorCode::kInternal:
      return "internal error";
  }
  return "unknown error";
}

Error::Error(ErrorCode code, const std::string& message, std::source_location where)
    : std::runtime_error(message), code_(code), where_(where) {}

void throw_errno(std::string_view what, const std::string& path, std::source_location where) {
  const int number = errno;
  throw Error(ErrorCode::kIo,
              std::string(what) + " " + path + ": " + std::generic_category().message(number),
              where);
}

}  // namespace longhaul
