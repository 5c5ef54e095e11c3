// How the ranks of a job, or of one ring of it, exchange data. The collectives are written once,
// over point-to-point transfers, in collectives.cc; an implementation (in_process.cc,
// mpi_communicator.cc) only moves messages. So every implementation sums in the same order and
// gives the same bits, and a collective that hangs names the rank that it waits for. Spans are host
// memory, unless make_gpu_communicator (gpu_communicator.h) made the communicator.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/comm/traffic.h"
#include "cluster/comm/transfer.h"
#include "cluster/comm/verdict.h"

namespace longhaul {

class InProcessHub;

enum class CommunicatorKind {
  kInProcess,  // ranks are threads of this process
  kMpi,        // ranks are the processes that mpirun or srun started
};

struct CommunicatorConfig {
  CommunicatorKind kind = CommunicatorKind::kInProcess;
  // How long a wait lasts before it throws kTimeout: longer than the longest step of the slowest
  // rank, and at least ten times a network outage that shall be ridden out.
  std::chrono::milliseconds default_deadline = std::chrono::seconds(120);
  // kInProcess only: the meeting place of the ranks and this rank's number there (run_in_process
  // fills them in). Without a hub the communicator has one rank.
  std::shared_ptr<InProcessHub> hub;
  int rank = 0;
  // kMpi only: longer messages travel in pieces of this size (MPI counts are 32 bits wide).
  std::size_t mpi_piece_bytes = std::size_t{1} << 30;
};

// The ranks of a communicator: which ranks of the job they are, in order.
struct Group {
  std::vector<int> members;  // [size] ranks of the job
  int rank = 0;              // this rank's index in `members`
  int context = 0;           // keeps apart the messages of groups that share ranks
};

// What the communicators split from one another share on one rank.
struct CommunicatorFamily {
  std::shared_ptr<FailureFlag> aborted;
  std::optional<std::string> broken;  // why; set by the owning thread's own failures
  int next_context = 1;
  std::chrono::milliseconds default_deadline{};
};

// Ranks count from 0 within the communicator; a rank of the job is called a job rank.
//
// Thread: one thread owns a communicator, with all that was split from it; only abort() may be
// called from others. Blocking: collectives and waits block, at most until the default deadline.
// Errors: kTimeout names this rank, the peer, the operation and how long it waited. kPeerFailed
// carries the verdict of a rank that has aborted. After either the communicator is broken, with
// those split from it and the one it was split from: every later call throws.
//
// Collectives are called by all ranks of the communicator in the same order, with arguments that
// fit together.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return group_.rank; }
  int size() const { return static_cast<int>(group_.members.size()); }
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }
  int job_rank() const { return job_rank_of(rank()); }
  int job_rank_of(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }

  // --- Point to point ---

  // Local. Starts moving `data` to rank `to`. May complete before the peer receives (short
  // messages) or only then, so start the receives that peers depend on before waiting for sends.
  // A rank may send to itself.
  Transfer start_send(int to, Tag tag, std::span<const std::byte> data);
  // Local. Starts receiving exactly buffer.size() bytes from rank `from`.
  Transfer start_receive(int from, Tag tag, std::span<std::byte> buffer);
  // Collective over comm, does not wait for peers. Starts a step of a schedule that all ranks know:
  // what this rank receives and sends in it, from and to as many ranks as it likes. All ranks call
  // it in one order, among each other and with the collectives, also those that have no part; what
  // one sends, the other receives in the same call. Parts without bytes are no messages. Since
  // nothing has to be said about them before, GPUs exchange them without hosts
  // (gpu_communicator.h).
  //
  //   4 ranks, a hop of a ring:   rank 1:  start_exchange(tag, {from 0}, {to 2})
  Exchange start_exchange(Tag tag, std::span<const Incoming> in, std::span<const Outgoing> out);
  // Collective over comm, blocks. What exchanges need besides is made now, not by the first of
  // them, where making it could wait for what is under way already.
  virtual void prepare_exchanges() {}
  // Local, does not block. Lets transfers advance; call it between kernels. Throws kPeerFailed when
  // a rank has aborted.
  virtual void progress() = 0;

  // --- Collectives. All are collective over comm and block until this rank's part is done. ---

  // Returns when every rank has called it.
  void barrier();
  // Rank `root`'s data replaces that of all others; equal sizes. Binomial tree.
  void broadcast(std::span<std::byte> data, int root);
  // Returns rank `root`'s text; that of the others is ignored.
  std::string broadcast_text(std::string text, int root);

  // values[i] becomes ((x0[i] + x1[i]) + x2[i]) + ..., by rank: the same bits on every rank, in
  // every run and with every implementation. Each rank sends (size - 1) * n bytes up to
  // kDirectReduceBytes (one round, lowest latency), else 2 * (size - 1) / size * n (each rank sums
  // its slice, then all slices are gathered).
  void all_reduce_sum(std::span<float> values);
  // The same for a caller who adds the sum to something, and so can add up the last parts on the
  // way: calls add(parts) once, [n_parts, values.size()] in the kind of memory that values are in,
  // whose sum in this order is the result. `values` and parts are not defined afterwards.
  using AddParts = std::function<void(std::span<const float> parts)>;
  void all_reduce_sum(std::span<float> values, const AddParts& add);
  void all_reduce_sum(std::span<double> values);
  void all_reduce_sum(std::span<std::int64_t> values);
  // The largest; NaN if any is NaN.
  void all_reduce_max(std::span<float> values);
  void all_reduce_max(std::span<double> values);
  void all_reduce_max(std::span<std::int64_t> values);
  static constexpr std::size_t kDirectReduceBytes = 64 * 1024;

  // `all` becomes [size, mine.size()]: every rank's data, by rank. Each rank sends (size - 1) *
  // mine.size(). `mine` may be its own place in `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  // Rank r's data has sizes[r] bytes; in `all` they stand one after the other.
  void all_gather(std::span<const std::byte> mine, std::span<const std::size_t> sizes,
                  std::span<std::byte> all);
  // Sizes that only their ranks know: [size] byte strings. The same as all_gather of
  // kVaryingFirstBytes and a size, then, if any rank has more, of the rest.
  std::vector<std::vector<std::byte>> all_gather_varying(std::span<const std::byte> mine);
  static constexpr std::size_t kVaryingFirstBytes = 1016;  // a KiB with the size

  // Communicators over the ranks that gave the same color, ordered by (key, rank). Null for a
  // negative color.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // --- Failure ---

  // Collective over comm. The verdict of the lowest rank that failed, the same on all ranks; ok if
  // none did.
  Verdict agree(const Verdict& mine);
  // Local, any thread, does not wait for others. Breaks the communicator for the whole job: every
  // rank's present or next call throws kPeerFailed with this rank, code and message. In one
  // process waits end at once; over MPI when the notice arrives (peers that wait poll for it). The
  // first abort counts.
  void abort(ErrorCode code, const std::string& message) noexcept;
  // Local. That first one, or ok while there was none.
  Verdict first_abort() const { return family_->aborted->verdict(); }
  // Local. True after a failure: nothing can be sent any more.
  bool broken() const { return family_->aborted->raised() || family_->broken.has_value(); }

  // Local. What this rank has sent through this communicator (not through those split from it).
  const TrafficCounters& traffic() const { return traffic_; }
  std::chrono::milliseconds default_deadline() const { return family_->default_deadline; }

 protected:
  Communicator(Group group, std::shared_ptr<CommunicatorFamily> family);

  // What an implementation provides. Peers are ranks of this communicator. A ticket names a
  // transfer from post_*() until it was found complete or dropped.
  virtual int post_send(int to, Tag tag, std::span<const std::byte> data) = 0;
  virtual int post_receive(int from, Tag tag, std::span<std::byte> buffer) = 0;
  // Tickets of what comes in, then of what goes out; no part is empty.
  virtual std::vector<int> post_exchange(Tag tag, std::span<const Incoming> in,
                                         std::span<const Outgoing> out);
  // True: complete; the ticket is free. Throws what the transfer failed with.
  virtual bool test_ticket(int ticket) = 0;
  // The same, blocking; false at the deadline. Returns early by throwing when a rank aborts.
  virtual bool wait_ticket(int ticket, Deadline deadline) = 0;
  // Withdraws a transfer: the buffer is not touched any more afterwards.
  virtual void drop_ticket(int ticket) noexcept = 0;
  // Any thread, possibly several times. The family's flag is raised.
  virtual void tell_peers(const Verdict& verdict) noexcept = 0;

  // Collectives work on host memory. An implementation whose callers may give other memory hands
  // out host memory in its place; the default is the caller's own.
  struct HostCopy {
    std::span<std::byte> bytes;
    std::shared_ptr<void> owner;  // of the copy; null: `bytes` is the caller's memory
  };
  enum class Use : bool { kRead, kWrite };
  // Holds what `data` holds, unless it will only be written.
  virtual HostCopy host_copy(std::span<const std::byte> data, Use use);
  // `data` becomes what the copy made of it holds now.
  virtual void put_back(const HostCopy& copy, std::span<std::byte> data);

  // For implementations that have a better way than through host memory; false: they do not here,
  // and the collective goes on as usual. All ranks come to the same answer. What is sent is counted
  // by the implementation, in sent().
  virtual bool gather_itself(std::span<const std::byte> mine,
                             std::span<const std::span<std::byte>> slices);
  // Leaves the last step to `add`, if there is one.
  virtual bool sum_itself(std::span<float> values, const AddParts* add);
  TrafficCounters& sent() { return traffic_; }

  const Group& group() const { return group_; }
  const std::shared_ptr<CommunicatorFamily>& family() const { return family_; }
  // For communicators that stand before another one and fail with it.
  static const std::shared_ptr<CommunicatorFamily>& family_of(const Communicator& other) {
    return other.family_;
  }
  static const Group& group_of(const Communicator& other) { return other.group_; }
  // For split(): finds out who has this rank's color. Nullopt for a negative color.
  std::optional<Group> split_group(int color, int key);
  void throw_if_broken();

 private:
  friend class Transfer;
  Deadline default_deadline_from_now() const { return deadline_in(family_->default_deadline); }
  void count_message(int to, Tag tag, std::size_t n_bytes);
  Transfer started(Transfer::Direction direction, int peer, Tag tag, std::size_t n_bytes,
                   int ticket);
  std::string describe(const Transfer& request) const;
  void wait_for(Transfer& request, Deadline deadline);
  bool test_for(Transfer& request);
  void drop(Transfer& request) noexcept;
  void mark_broken(const std::string& reason);
  void require_peer(int peer, Tag tag) const;

  void exchange(Traffic traffic, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in);
  void gather_slices(Traffic traffic, std::span<const std::byte> mine,
                     std::span<const std::span<std::byte>> slices);
  void broadcast_as(Traffic traffic, std::span<std::byte> data, int root);
  template <typename T, typename Combine>
  void all_reduce(std::span<T> values, Combine combine);
  template <typename T, typename Combine>
  void all_reduce_on_host(std::span<T> values, Combine combine);
  template <typename T, typename Combine>
  void reduce_rows(std::span<T> values, std::span<const T> rows, Combine combine);

  Group group_;
  std::shared_ptr<CommunicatorFamily> family_;
  TrafficCounters traffic_;
  std::vector<std::byte> scratch_;  // for all_reduce; kept, so that decoding does not allocate
};

// The one factory. kInProcess: local. kMpi: collective over all processes; needs an MpiEnvironment;
// throws kUnsupported in a build without MPI.
std::unique_ptr<Communicator> make_communicator(const CommunicatorConfig& config);

// Collective over comm. Runs `work`, which must be local, and agrees on how it went: if it threw on
// any rank, all ranks throw the same error, that of the lowest rank that failed.
template <typename Work>
void agree_on(Communicator& comm, Work&& work) {
  Verdict mine;
  try {
    work();
  } catch (...) {
    mine = verdict_of(std::current_exception(), comm.job_rank());
  }
  throw_if_failed(comm.agree(mine));
}

}  // namespace longhaul
