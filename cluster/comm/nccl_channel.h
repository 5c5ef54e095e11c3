// One NCCL communicator that never blocks its thread: it is made, used and ended by calls that
// return at once, and poll() says how far it is. Included by nccl*.cc only.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/device/device_cuda.h"
#include "cluster/comm/nccl_library.h"

namespace longhaul {

using NcclId = ncclUniqueId;

// One launch: what is queued between ncclGroupStart and ncclGroupEnd.
struct NcclLaunch {
  std::string what;  // for errors: "keys (64 bytes) to rank 2"
  std::function<ncclResult_t(ncclComm_t, cudaStream_t)> queue;
  cuda::Event start;  // work may start when it is done
  cuda::Event end;
  bool launched = false;  // `end` is recorded
  bool done() const { return launched && end.is_done(); }
};

// Launches run one after the other on a stream of the channel's own, so both sides must queue them
// in the same order. Used by one thread; its GPU is the thread's.
class NcclChannel {
 public:
  // Starts making the communicator: all `n_ranks` must, with one id.
  NcclChannel(std::shared_ptr<const NcclLibrary> nccl, int n_ranks, int rank, const NcclId& id);
  // Frees the communicator at once if finish() has not ended it.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  void add(std::shared_ptr<NcclLaunch> launch) { queue_.push_back(std::move(launch)); }
  // Lets it advance. Throws kNccl: what it was about, and what NCCL says.
  void poll();

  // Ends the communicator, and what is under way on it.
  void abort() noexcept;
  // The peaceful end, which all ranks of it come to: starts it; and true when it is over.
  void start_finish() noexcept;
  bool finished() noexcept;

 private:
  enum class State { kWorking, kReady, kFinishing, kEnded };
  [[noreturn]] void fail(ncclResult_t result) const;
  bool is_in_progress();

  std::shared_ptr<const NcclLibrary> nccl_;
  cuda::Stream stream_;
  ncclComm_t comm_ = nullptr;
  State state_ = State::kWorking;
  std::shared_ptr<NcclLaunch> current_;  // null while the communicator is being made
  std::deque<std::shared_ptr<NcclLaunch>> queue_;
};

}  // namespace longhaul
