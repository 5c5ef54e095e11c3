#include "tools/job/exit_status.h"

namespace longhaul {

ExitStatus exit_status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kFailedPrecondition:
      return kExitUsage;
    case ErrorCode::kOutOfMemory:
      return kExitDoesNotFit;
    case ErrorCode::kUnsupported:
    case ErrorCode::kIo:
    case ErrorCode::kCuda:
    case ErrorCode::kNccl:
    case ErrorCode::kMpi:
      return kExitEnvironment;
    case ErrorCode::kCorruptData:
      return kExitBadInput;
    case ErrorCode::kCancelled:
      return kExitStopped;
    case ErrorCode::kTimeout:
    case ErrorCode::kPeerFailed:
    case ErrorCode::kInternal:
      break;
  }
  return kExitInternal;
}

}  // namespace longhaul
