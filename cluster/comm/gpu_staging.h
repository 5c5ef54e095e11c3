// Messages between GPU memory and a host communicator, through pinned memory. What the GPU
// communicators of a rank share. Used by one thread.
#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include "cluster/comm/communicator.h"
#include "cluster/comm/pinned_pool.h"

namespace longhaul {

// A message out of GPU memory: copied, then sent.
struct StagedSend {
  Communicator* host = nullptr;
  int to = 0;
  Tag tag;
  std::span<const std::byte> data;     // host memory
  std::shared_ptr<PinnedBlock> block;  // holds `data`; null: the caller's own host memory
  bool started = false;
  Transfer transfer;  // once started
};

// A message into GPU memory: received, then copied.
struct StagedReceive {
  std::span<std::byte> target;         // GPU memory
  std::shared_ptr<PinnedBlock> block;  // where the message arrives; `copied` stands behind the
                                       // readers of the target's old content until finish()
  Transfer transfer;
};

class GpuStaging {
 public:
  explicit GpuStaging(cuda::Stream& compute);

  cuda::Stream& compute() { return compute_; }
  PinnedPool& pool() { return pool_; }

  // Queues the copy. `data` is GPU memory.
  std::shared_ptr<StagedSend> send(Communicator& host, int to, Tag tag,
                                   std::span<const std::byte> data);
  // For data in host memory that must not overtake: null when no send of that tag waits, and it can
  // be sent at once.
  std::shared_ptr<StagedSend> send_behind(Communicator& host, int to, Tag tag,
                                          std::span<const std::byte> data);
  // Starts the sends whose copies are done, in their order. Does not block.
  void start_ready();
  bool has_waiting_sends() const { return !waiting_.empty(); }
  // Forgets a send that has not started.
  void withdraw(const std::shared_ptr<StagedSend>& send);

  std::shared_ptr<StagedReceive> receive(Communicator& host, int from, Tag tag,
                                         std::span<std::byte> target);
  // The message is there: queues its copy, and lets later compute wait for it.
  void finish(StagedReceive& receive);

 private:
  cuda::Stream& compute_;
  cuda::Stream out_;  // copies to the host
  cuda::Stream in_;   // copies from it: both directions at once
  PinnedPool pool_;
  std::deque<std::shared_ptr<StagedSend>> waiting_;
};

}  // namespace longhaul
