// Parts of exchanges (Communicator::start_exchange) whose two ends are GPUs of one host, by the
// GPUs' copy engines: no multiprocessor takes part, and no host once they are queued.
//
// Each rank has a landing area in its GPU's memory for every other rank of its host, of a few
// slots. The sender's stream copies a chunk into a slot, and the receiver's copies it to its place:
//
//   sender's stream    wait: chunk n - 4 is freed   copy into slot n % 4   write: n has arrived
//   receiver's stream  wait: n has arrived          copy out of the slot   write: n is freed
//
// So no rank has to know where another one's buffers lie. The words that are written and waited for
// lie in memory of the host, one segment for each rank with those that its own streams wait for. On
// a failure its host sets them, so that no wait goes on, whatever has become of the others; and
// tells the others before, who then take nothing for whole that comes from it.
//
// What streams wait for by words, CUDA does not know: it may put work of two streams into one
// queue, in the order of the calls. So these must do in one queue, too, and they do: rank by rank
// the order is exchange by exchange, and in each of them chunk by chunk: first the n-th chunks to
// all others, then the n-th ones from all others. A rank waits for nothing but what stands earlier
// in that order of all ranks, so the earliest that is not done can always go on.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "base/device/device_cuda.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/gpu_peers.h"
#include "cluster/comm/gpu_transport.h"

namespace longhaul {

// One rank's, of all its communicators. Used by one thread, whose GPU it is.
class CopyEngines {
 public:
  // Null where they cannot be used; `why` then says so.
  static std::unique_ptr<CopyEngines> open(const CopyEngineConfig& config, std::string& why);
  // Waits until the others have closed what they have opened of this rank, but not for long.
  ~CopyEngines();
  CopyEngines(const CopyEngines&) = delete;
  CopyEngines& operator=(const CopyEngines&) = delete;

  // Collective over comm, blocks; all ranks have copy engines. Finds out which of them reach each
  // other, and takes memory. `host` stands for the group in what follows.
  void connect(Communicator& comm, const Communicator& host);
  bool reaches(const Communicator& host, int rank) const;
  // `host` is about to go, and all its exchanges are over.
  void forget(const Communicator& host) noexcept;
  std::size_t landing_bytes() const;  // of all groups

  // Points behind an exchange's copies.
  struct Ends {
    cuda::Event out, in;
    bool are_done() const { return out.is_done() && in.is_done(); }
  };
  // Queues parts of an exchange behind `start`: those with ranks that it reaches.
  Ends queue(const Communicator& host, const cuda::Event& start, std::span<const Incoming> in,
             std::span<const Outgoing> out);

  // Throws kNccl if a rank has given up that this one exchanges with. What has arrived was sent if
  // this does not throw afterwards. Does not block.
  void look() const;

  // After a failure: ends all that streams wait for here, again and again until finish_giving_up(),
  // which blocks until the streams have come to their end, at most for some seconds.
  void give_up() noexcept;
  void finish_giving_up() noexcept;

 private:
  struct Groups;
  CopyEngines(const CopyEngineConfig& config, const cuda::StreamWords& words);
  bool are_streams_done() const noexcept;
  bool wait_for_streams() const noexcept;
  void release() const noexcept;

  CopyEngineConfig config_;
  cuda::StreamWords words_;
  cuda::Stream out_;  // to other ranks
  cuda::Stream in_;   // out of landing areas
  std::unique_ptr<Groups> groups_;
  bool has_given_up_ = false;
  std::jthread releaser_;
};

}  // namespace longhaul
