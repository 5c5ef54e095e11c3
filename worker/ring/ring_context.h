// What the parts of the ring share on one rank: the communicator, where time is counted, and the
// board that tells the coordinator what this rank waits for, the trace, if one is kept, and the
// stream of the rank's tensors, whose memory the communicator takes.
#pragma once
#include <cstdint>

#include "base/device/device.h"
#include "base/ids.h"
#include "cluster/comm/communicator.h"
#include "cluster/wire/phase.h"
#include "worker/attention/gather_bytes.h"
#include "worker/phase_clock.h"
#include "worker/ring/trace.h"

namespace longhaul {

struct RingContext {
  Communicator& comm;
  PhaseClock& times;
  PhaseBoard* board = nullptr;
  Trace* trace = nullptr;
  LayerId layer{};
  std::int64_t hop = -1;
  StreamRef stream = StreamRef::cpu();

  void add_span(TraceLane lane, const char* name, Clock::time_point begin) {
    add_span(lane, name, begin, hop);
  }
  void add_span(TraceLane lane, const char* name, Clock::time_point begin, std::int64_t of_hop) {
    if (trace != nullptr) trace->add({lane, name, layer, of_hop, begin, Clock::now()});
  }
  // How choices by attention ask all ranks: collective over the ring, each time it is called.
  GatherBytes gather() const {
    return
        [&ranks = comm](std::span<const std::byte> mine) { return ranks.all_gather_varying(mine); };
  }
  // Where on the ring, whose communicator this is, stands this rank, and where what is here after
  // so many hops set out.
  RingPos position() const { return {comm.rank()}; }
  RingPos origin(std::int64_t n_hops) const {
    const std::int64_t n_ranks = comm.size();
    return {((comm.rank() - n_hops) % n_ranks + n_ranks) % n_ranks};
  }

  // Blocks until the transfer is complete; the time counts as waiting for rank `peer` of comm.
  void wait(Transfer& transfer, int peer) {
    if (transfer.test()) return;
    const PhaseTimer timer(times, Phase::kRingWait);
    const WaitMark mark(board, Rank{comm.job_rank_of(peer)});
    const auto begin = Clock::now();
    transfer.wait();
    add_span(TraceLane::kWait, "wait", begin);
  }
  // The same on a ring.
  void wait(Transfer& transfer, RingPos peer) { wait(transfer, static_cast<int>(peer.value)); }
  void set_layer(LayerId number) {
    layer = number;
    if (board != nullptr) board->set_layer(number);
  }
  void set_hop(std::int64_t number) {
    hop = number;
    if (board != nullptr) board->set_hop(number);
  }

  // Says on the board that this rank waits for `peer` (none: for all), until its scope ends.
  class WaitMark {
   public:
    WaitMark(PhaseBoard* to, Rank peer = {}) : board_(to) {
      if (board_ != nullptr) board_->enter(Activity::kWaiting, peer);
    }
    ~WaitMark() {
      if (board_ != nullptr) board_->enter(Activity::kComputing);
    }
    WaitMark(const WaitMark&) = delete;
    WaitMark& operator=(const WaitMark&) = delete;

   private:
    PhaseBoard* board_;
  };
};

}  // namespace longhaul
