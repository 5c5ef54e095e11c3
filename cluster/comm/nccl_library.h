// NCCL, opened when it is first asked for: the program runs where it is not installed. Included by
// nccl*.cc only.
#pragma once
#include <nccl.h>

#include <memory>
#include <string>

namespace longhaul {

// NCCL's functions, by their names without "nccl".
struct NcclLibrary {
  decltype(&ncclGetVersion) GetVersion = nullptr;
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommFinalize) CommFinalize = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;

  int version = 0;
};

// Null where it cannot be opened or lacks a function; then `why` says so. Stays open for good:
// NCCL's threads may outlive its communicators.
std::shared_ptr<const NcclLibrary> open_nccl(const std::string& file, std::string& why);

}  // namespace longhaul
