// Compiled instead of the other nccl*.cc where NCCL's header was not found or it was not wanted.
#include "base/error.h"
#include "cluster/comm/copy_engines.h"
#include "cluster/comm/nccl_transport.h"

namespace longhaul {
namespace {

constexpr const char* kAbsent =
    "this build is without NCCL: nccl.h was not found, or -DLONGHAUL_NCCL=OFF";

[[noreturn]] void absent() { throw Error(ErrorCode::kUnsupported, kAbsent); }

}  // namespace

NcclFound find_nccl(const std::string& /*library*/) { return {.version = "", .why_none = kAbsent}; }

struct NcclTransport::Groups {};

std::unique_ptr<NcclTransport> NcclTransport::open(cuda::Stream&, const std::string&,
                                                   std::string& why) {
  why = kAbsent;
  return nullptr;
}
NcclTransport::~NcclTransport() = default;
int NcclTransport::version() const { return 0; }
bool NcclTransport::has(const Communicator&) const { return false; }
void NcclTransport::make_id(std::span<std::byte>) { absent(); }
void NcclTransport::join(const Communicator&, std::span<const std::byte>) { absent(); }
bool NcclTransport::is_joined(const Communicator&) { absent(); }
void NcclTransport::use(std::unique_ptr<CopyEngines>) { absent(); }
std::shared_ptr<NcclTransfer> NcclTransport::exchange(const Communicator&, std::string,
                                                      std::span<const Incoming>,
                                                      std::span<const Outgoing>) {
  absent();
}
bool NcclTransport::is_done(const NcclTransfer&) { absent(); }
void NcclTransport::gather(const Communicator&, std::span<const std::byte>, std::byte*) {
  absent();
}
void NcclTransport::trade(const Communicator&, std::span<const std::span<const std::byte>>,
                          std::span<const std::span<std::byte>>) {
  absent();
}
void NcclTransport::poll() {}
void NcclTransport::abort() noexcept {}
void NcclTransport::forget(const Communicator&) noexcept {}

}  // namespace longhaul
