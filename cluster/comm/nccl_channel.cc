#include "cluster/comm/nccl_channel.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cluster/comm/gpu_copies.h"

namespace longhaul {

NcclChannel::NcclChannel(std::shared_ptr<const NcclLibrary> nccl, int n_ranks, int rank,
                         const NcclId& id)
    : nccl_(std::move(nccl)), stream_(cuda::current_gpu()) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl_->CommInitRankConfig(&comm_, n_ranks, id, rank, &config);
  if (result != ncclSuccess && result != ncclInProgress) fail(result);
}

NcclChannel::~NcclChannel() { abort(); }

void NcclChannel::fail(ncclResult_t result) const {
  throw Error(ErrorCode::kNccl,
              fmt::format("NCCL, {}: {}", current_ ? current_->what : "making a communicator",
                          nccl_->GetErrorString(result)));
}

bool NcclChannel::is_in_progress() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl_->CommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) fail(result);
  if (state != ncclSuccess && state != ncclInProgress) fail(state);
  return state == ncclInProgress;
}

// A call on a communicator whose last one is still in progress is an error, and an event recorded
// before that one has reached the stream stands before it.
void NcclChannel::poll() {
  if (state_ == State::kFinishing || state_ == State::kEnded) return;
  if (is_in_progress()) return;
  if (state_ == State::kWorking) {
    if (current_) {
      current_->end.record(stream_);
      current_->launched = true;
    }
    state_ = State::kReady;
  }
  if (queue_.empty()) return;
  current_ = std::move(queue_.front());
  queue_.pop_front();
  stream_.wait_for(current_->start);
  const ncclResult_t result = current_->queue(comm_, static_cast<cudaStream_t>(stream_.native()));
  if (result != ncclSuccess && result != ncclInProgress) fail(result);
  state_ = State::kWorking;
}

void NcclChannel::abort() noexcept {
  if (state_ == State::kEnded || comm_ == nullptr) return;
  state_ = State::kEnded;
  const ncclResult_t result = nccl_->CommAbort(std::exchange(comm_, nullptr));
  if (result != ncclSuccess && result != ncclInProgress) {
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
  const ncclResult_t result = nccl_->CommFinalize(comm_);
  if (result != ncclSuccess && result != ncclInProgress) abort();
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

}  // namespace longhaul
