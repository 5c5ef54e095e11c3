// One NCCL communicator. It never blocks its thread for a peer: its calls return at once, and
// is_ready() says when the last one is over. Included by nccl*.cc only.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/device/device_cuda.h"
#include "cluster/comm/nccl_library.h"

namespace longhaul {

using NcclId = ncclUniqueId;

// All ranks must make the same calls in one order. Used by one thread; its GPU is the thread's.
class NcclChannel {
 public:
  // Starts making the communicator: all `n_ranks` must, with one id.
  NcclChannel(std::shared_ptr<const NcclLibrary> nccl, int n_ranks, int rank, const NcclId& id);
  // Frees the communicator at once if finish() has not ended it.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  const NcclLibrary& nccl() const { return *nccl_; }

  // Whether the communicator is made, and what was called last is in its stream. Throws kNccl: what
  // it was about, and what NCCL says.
  bool is_ready();
  // Queues work on a cudaStream_t; only when it is ready. `what` is for errors.
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  void call(std::string what, void* stream, const Call& call);
  // The same, and waits until it is in the stream, which between ranks that have exchanged
  // something before takes microseconds.
  void run(std::string what, void* stream, const Call& call);

  // Ends the communicator, and what is under way on it.
  void abort() noexcept;
  // The peaceful end, which all ranks of it come to: starts it; and true when it is over.
  void start_finish() noexcept;
  bool finished() noexcept;

 private:
  enum class State { kWorking, kReady, kFinishing, kEnded };
  [[noreturn]] void fail(std::string_view why) const;

  std::shared_ptr<const NcclLibrary> nccl_;
  ncclComm_t comm_ = nullptr;
  State state_ = State::kWorking;
  std::string what_ = "making a communicator";  // was called last
};

// Parts of one launch: what is queued between ncclGroupStart and ncclGroupEnd.
struct NcclPart {
  int peer = 0;
  bool sends = false;
  const std::byte* data = nullptr;
  std::size_t n_bytes = 0;
  bool operator==(const NcclPart&) const = default;
};

// Work for a CUDA queue, which may also capture it (base/device/step_graph.h). The channel outlives
// it.
struct NcclGroup {
  NcclChannel* channel = nullptr;
  std::string what;
  std::vector<NcclPart> parts;
  bool operator==(const NcclGroup&) const = default;
  ncclResult_t call(ncclComm_t comm, cudaStream_t stream) const;
  void queue(void* stream) const;
};
// All ranks' `mine` of n_bytes, by rank.
struct NcclGather {
  NcclChannel* channel = nullptr;
  const std::byte* mine = nullptr;
  std::byte* all = nullptr;
  std::size_t n_bytes = 0;
  bool operator==(const NcclGather&) const = default;
  void queue(void* stream) const;
};

}  // namespace longhaul
