// What the parts of the ring share on one rank: the communicator, where time is counted, and the
// board that tells the coordinator what this rank waits for.
#pragma once
#include <cstdint>

#include "cluster/comm/communicator.h"
#include "cluster/wire/phase.h"
#include "worker/phase_times.h"

namespace longhaul {

struct RingContext {
  Communicator& comm;
  PhaseTimes& times;
  PhaseBoard* board = nullptr;

  // Blocks until the transfer is complete; the time counts as waiting for rank `peer` of comm.
  void wait(Transfer& request, std::int64_t peer) {
    if (request.test()) return;
    const PhaseTimer timer(times, Phase::kRingWait);
    const WaitMark mark(board, comm.job_rank_of(static_cast<int>(peer)));
    request.wait();
  }
  void set_layer(std::int64_t layer) {
    if (board != nullptr) board->set_layer(layer);
  }
  void set_hop(std::int64_t hop) {
    if (board != nullptr) board->set_hop(hop);
  }

  // Says on the board that this rank waits for job rank `peer` (-1: for all), until its scope ends.
  class WaitMark {
   public:
    WaitMark(PhaseBoard* to, std::int64_t peer) : board_(to) {
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
