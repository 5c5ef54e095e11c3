#include "cluster/comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "cluster/comm/nccl_transport.h"

namespace longhaul {
namespace {

// The first version whose communicators can all be made, used and ended without blocking.
constexpr int kOldestVersion = NCCL_VERSION(2, 18, 0);

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

std::shared_ptr<const NcclLibrary> open_nccl(const std::string& file, std::string& why) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    why = fmt::format("{} cannot be opened: {}", file, reason == nullptr ? "unknown" : reason);
    return nullptr;
  }
  auto nccl = std::make_shared<NcclLibrary>();
  const bool complete = find(handle, "ncclGetVersion", nccl->GetVersion) &&
                        find(handle, "ncclGetUniqueId", nccl->GetUniqueId) &&
                        find(handle, "ncclCommInitRankConfig", nccl->CommInitRankConfig) &&
                        find(handle, "ncclCommFinalize", nccl->CommFinalize) &&
                        find(handle, "ncclCommDestroy", nccl->CommDestroy) &&
                        find(handle, "ncclCommAbort", nccl->CommAbort) &&
                        find(handle, "ncclCommGetAsyncError", nccl->CommGetAsyncError) &&
                        find(handle, "ncclGetErrorString", nccl->GetErrorString) &&
                        find(handle, "ncclSend", nccl->Send) &&
                        find(handle, "ncclRecv", nccl->Recv) &&
                        find(handle, "ncclAllGather", nccl->AllGather) &&
                        find(handle, "ncclGroupStart", nccl->GroupStart) &&
                        find(handle, "ncclGroupEnd", nccl->GroupEnd);
  if (!complete || nccl->GetVersion(&nccl->version) != ncclSuccess ||
      nccl->version < kOldestVersion) {
    why = fmt::format("{} is too old (version {})", file, nccl->version);
    return nullptr;
  }
  return nccl;
}

NcclFound find_nccl(const std::string& library) {
  NcclFound found;
  if (const auto nccl = open_nccl(library, found.why_none)) {
    const int version = nccl->version;  // 10000 a + 100 b + c
    found.version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
  return found;
}

}  // namespace longhaul
