#include "tools/job/exit_status.h"

namespace longhaul {

std::string exit_status_help() {
  return "Exit status: 0 done; 1 some requests failed; 2 wrong flags, or files and ranks\n"
         "that do not belong together; 3 does not fit memory; 4 machine or build lacks\n"
         "something (disk, device, library, network); 5 an input is missing, broken or\n"
         "of a kind that is not read; 70 an error of Longhaul; 75 stopped, or a rank was\n"
         "lost: run the same command again. Only 75 is worth another try as it is.";
}

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
    case ErrorCode::kTimeout:
      return kExitStopped;
    case ErrorCode::kPeerFailed:
    case ErrorCode::kInternal:
      break;
  }
  return kExitInternal;
}

}  // namespace longhaul
