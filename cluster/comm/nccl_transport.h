// Transfers straight between the memories of two GPUs, by NCCL. What the GPU communicators of a
// rank share. Needs no NCCL to include; nccl_absent.cc stands in where its header was not found.
//
// NCCL's sends and receives have no tags, block their stream until the peer takes part, and
// deadlock when two ranks queue them in orders that do not fit. So nothing is queued before both
// sides have said over the host communicator that they are ready, and the receiver says in which
// order:
//
//   sender                                  receiver
//   start_send: "offer 7, 4096 bytes"  -->  (matches start_receive of that tag, as any message)
//   ncclSend                           <--  "take 7", ncclRecv
//
// Each pair of ranks has an NCCL communicator of two for each direction, made with its first
// transfer: transfers of different pairs never wait for each other, and those of one pair run in
// the order of the "take"s, which a host communicator delivers in order. Collectives have one
// communicator of the whole group, on which all ranks queue in the order of the calls.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/device/device_cuda.h"
#include "cluster/comm/communicator.h"

namespace longhaul {

struct NcclLibrary;
struct NcclLaunch;
class NcclChannel;

struct NcclTransfer;  // one transfer under way

// "2.18.5" of the library that transports would open, which stays open; else why there is none.
struct NcclFound {
  std::string version;
  std::string why_none;
};
NcclFound find_nccl(const std::string& library);

// Used by one thread. Every call may throw kNccl, or what the host communicator throws.
class NcclTransport {
 public:
  // Null where NCCL is not there; `why` then says so.
  static std::unique_ptr<NcclTransport> open(cuda::Stream& compute, const std::string& library,
                                             std::string& why);
  ~NcclTransport();  // ends its communicators, together with the peers' if all went well
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  // As in ncclGetVersion; ranks use NCCL with each other where theirs are equal.
  int version() const;

  // Local. Both memories are GPUs'.
  std::shared_ptr<NcclTransfer> send(Communicator& host, int to, Tag tag,
                                     std::span<const std::byte> data);
  std::shared_ptr<NcclTransfer> receive(Communicator& host, int from, Tag tag,
                                        std::span<std::byte> buffer);
  // Lets everything advance. Does not block.
  void poll();
  bool is_idle() const { return active_.empty(); }
  static bool is_done(const NcclTransfer& transfer);

  // For collectives over all ranks of `host`. The id of the group's communicator, to be broadcast
  // by its rank 0 when needs_id().
  bool needs_id(const Communicator& host) const;
  static constexpr std::size_t kIdBytes = 128;
  void make_id(std::span<std::byte> id);
  void join(const Communicator& host, std::span<const std::byte> id);
  // out[r] goes to rank r, in[r] comes from it; this rank's own are left alone. Local; is_done()
  // when this rank's part is.
  std::shared_ptr<NcclTransfer> exchange(const Communicator& host,
                                         std::span<const std::span<const std::byte>> out,
                                         std::span<const std::span<std::byte>> in);

  // After a failure: ends all communicators and what is under way.
  void abort() noexcept;
  // A host communicator is about to go: its group's communicators end when all ranks have come to
  // this.
  void forget(const Communicator& host) noexcept;

 private:
  struct Channels;
  NcclTransport(cuda::Stream& compute, std::shared_ptr<const NcclLibrary> nccl);
  void advance(const std::shared_ptr<NcclTransfer>& transfer);
  void take_answers();

  cuda::Stream& compute_;
  std::shared_ptr<const NcclLibrary> nccl_;
  std::unique_ptr<Channels> channels_;
  std::deque<std::shared_ptr<NcclTransfer>> active_;  // in the order in which they were started
  std::int64_t n_offers_ = 0;
};

}  // namespace longhaul
