#include "cluster/comm/nccl_channel.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "base/log.h"

namespace longhaul {
namespace {

// No call that connects nobody takes this long.
constexpr std::chrono::seconds kCallDeadline{30};

bool is_fine(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

}  // namespace

NcclChannel::NcclChannel(std::shared_ptr<const NcclLibrary> nccl, int n_ranks, int rank,
                         const NcclId& id)
    : nccl_(std::move(nccl)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = kTransferThreadBlocks;
  const ncclResult_t result = nccl_->CommInitRankConfig(&comm_, n_ranks, id, rank, &config);
  if (!is_fine(result)) fail(nccl_->GetErrorString(result));
}

NcclChannel::~NcclChannel() { abort(); }

void NcclChannel::fail(std::string_view why) const {
  throw Error(ErrorCode::kNccl, fmt::format("NCCL, {}: {}", what_, why));
}

bool NcclChannel::is_ready() {
  if (state_ == State::kFinishing || state_ == State::kEnded) return false;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl_->CommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) fail(nccl_->GetErrorString(result));
  if (!is_fine(state)) fail(nccl_->GetErrorString(state));
  state_ = state == ncclInProgress ? State::kWorking : State::kReady;
  return state_ == State::kReady;
}

// A call on a communicator whose last one is still in progress is an error, and an event recorded
// before that one has reached the stream stands before it.
void NcclChannel::call(std::string what, void* stream, const Call& call) {
  if (state_ == State::kEnded) fail("its communicator has ended");
  what_ = std::move(what);
  state_ = State::kWorking;
  const ncclResult_t result = call(comm_, static_cast<cudaStream_t>(stream));
  if (!is_fine(result)) fail(nccl_->GetErrorString(result));
}

void NcclChannel::run(std::string what, void* stream, const Call& to_call) {
  call(std::move(what), stream, to_call);
  const Deadline deadline = deadline_in(kCallDeadline);
  while (!is_ready()) {
    if (Clock::now() > deadline) fail("the call has not come to an end");
    std::this_thread::yield();
  }
}

void NcclChannel::abort() noexcept {
  if (state_ == State::kEnded || comm_ == nullptr) return;
  state_ = State::kEnded;
  const ncclResult_t result = nccl_->CommAbort(std::exchange(comm_, nullptr));
  if (!is_fine(result)) {
    LONGHAUL_LOG(kWarning, kComm, "ncclCommAbort: {}", nccl_->GetErrorString(result));
  }
}

void NcclChannel::start_finish() noexcept {
  ncclResult_t state = ncclSuccess;
  if (state_ == State::kEnded) return;
  if (nccl_->CommGetAsyncError(comm_, &state) != ncclSuccess || state != ncclSuccess) {
    return abort();
  }
  state_ = State::kFinishing;
  if (!is_fine(nccl_->CommFinalize(comm_))) abort();
}

bool NcclChannel::finished() noexcept {
  if (state_ != State::kFinishing) return true;
  ncclResult_t state = ncclSuccess;
  if (nccl_->CommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclSystemError;
  if (state == ncclInProgress) return false;
  if (state != ncclSuccess) {
    abort();
    return true;
  }
  state_ = State::kEnded;
  nccl_->CommDestroy(std::exchange(comm_, nullptr));
  return true;
}

ncclResult_t NcclGroup::call(ncclComm_t comm, cudaStream_t stream) const {
  const NcclLibrary& nccl = channel->nccl();
  ncclResult_t result = nccl.GroupStart();
  for (const NcclPart& part : parts) {
    if (!is_fine(result)) break;
    result = part.sends ? nccl.Send(part.data, part.n_bytes, ncclInt8, part.peer, comm, stream)
                        : nccl.Recv(const_cast<std::byte*>(part.data), part.n_bytes, ncclInt8,
                                    part.peer, comm, stream);
  }
  const ncclResult_t end = nccl.GroupEnd();
  return is_fine(result) ? end : result;
}

void NcclGroup::queue(void* stream) const {
  channel->run(what, stream,
               [this](ncclComm_t comm, cudaStream_t queue) { return call(comm, queue); });
}

void NcclGather::queue(void* stream) const {
  channel->run("a gather", stream, [this](ncclComm_t comm, cudaStream_t queue) {
    return channel->nccl().AllGather(mine, all, n_bytes, ncclInt8, comm, queue);
  });
}

}  // namespace longhaul
