// Exchanges straight between the memories of GPUs, by NCCL: steps of schedules that all ranks of a
// group know (Communicator::start_exchange), and collectives. What the GPU communicators of a rank
// share. Needs no NCCL to include; nccl_absent.cc stands in where its header was not found.
//
// NCCL's sends and receives have no tags, block their stream until the peer takes part, and
// deadlock when ranks queue them in orders that do not fit. So a group has one communicator, on
// which every rank queues in the order of the calls, and what a rank sends and receives in a step
// is one launch (ncclGroupStart, ncclGroupEnd). Then no rank can hold up another one for good:
//
//   of the launches that are not over, take the earliest. No rank's GPU waits for another launch
//   before it, and no rank's host for what comes after it, so every rank has queued it, or will.
//
// This holds even where a rank's host waits for its whole GPU in between (which taking memory and
// loading a kernel may do). GPUs need not run launches of several communicators beside each other,
// so those of all communicators of a rank run in the order of its calls, too, which must suit all.
//
// What has both ends on one host may go by copy engines instead (copy_engines.h), on streams of
// their own, before the launch of the same call; both can only wait for earlier calls.
//
// Transfers have one stream, which goes before compute where both want a multiprocessor; they begin
// behind what was queued on the compute stream. Collectives are queued on the compute stream
// itself, like kernels, behind transfers that were started before: no host waits for them, and
// steps that are noted (base/device/step_graph.h) may have them.
#pragma once
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "base/device/device_cuda.h"
#include "cluster/comm/communicator.h"

namespace longhaul {

class CopyEngines;
struct NcclLibrary;

struct NcclTransfer;  // one exchange under way

// "2.18.5" of the library that transports would open, which stays open; else why there is none.
struct NcclFound {
  std::string version;
  std::string why_none;
};
NcclFound find_nccl(const std::string& library);

// Used by one thread. Every call may throw kNccl.
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

  // A group of ranks gets its communicator, which is all ranks' of `host`: rank 0 makes the id, all
  // join, and poll is_joined() until all ranks are connected with each other.
  static constexpr std::size_t kIdBytes = 128;
  bool has(const Communicator& host) const;
  void make_id(std::span<std::byte> id);
  void join(const Communicator& host, std::span<const std::byte> id);
  bool is_joined(const Communicator& host);

  // From now on exchanges use them, in the groups that they are connected in.
  void use(std::unique_ptr<CopyEngines> copies);
  CopyEngines* copies() const { return copies_.get(); }

  // All of these by all ranks of `host`, in one order; all memory is the GPU's, and is not empty.
  std::shared_ptr<NcclTransfer> exchange(const Communicator& host, std::string what,
                                         std::span<const Incoming> in,
                                         std::span<const Outgoing> out);
  // Throws if it may have ended by a rank that gave up.
  static bool is_done(const NcclTransfer& transfer);
  // On the compute stream. `all` becomes every rank's `mine`, by rank.
  void gather(const Communicator& host, std::span<const std::byte> mine, std::byte* all);
  // And of any sizes: out[r] goes to rank r, in[r] comes from it; this rank's own are left alone.
  void trade(const Communicator& host, std::span<const std::span<const std::byte>> out,
             std::span<const std::span<std::byte>> in);

  // Looks for errors of what is under way. Does not block.
  void poll();
  bool is_idle() const { return active_.empty(); }

  // After a failure: ends all communicators and what is under way.
  void abort() noexcept;
  // A host communicator is about to go: its group's communicator ends when all ranks have come to
  // this.
  void forget(const Communicator& host) noexcept;

 private:
  struct Groups;
  NcclTransport(cuda::Stream& compute, std::shared_ptr<const NcclLibrary> nccl);
  void end_steps() noexcept;
  void follow_transfers();

  cuda::Stream& compute_;
  cuda::Stream transfers_;
  std::shared_ptr<const NcclLibrary> nccl_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<CopyEngines> copies_;               // null: there are none
  std::deque<std::shared_ptr<NcclTransfer>> active_;  // transfers, in their order
};

}  // namespace longhaul
