// What the parts of the ring share on one rank: the communicator, where time is counted, and the
// board that tells the coordinator what this rank waits for, the trace, if one is kept, and the
// stream of the rank's tensors, whose memory the communicator takes.
#pragma once
#include <cstdint>

#include "base/device.h"
#include "cluster/comm/communicator.h"
#include "cluster/wire/phase.h"
#include "worker/phase_clock.h"
#include "worker/ring/trace.h"

namespace longhaul {

struct RingContext {
  Communicator& comm;
  PhaseClock& times;
  PhaseBoard* board = nullptr;
  Trace* trace = nullptr;
  std::int64_t layer = -1;
  std::int64_t hop = -1;
  StreamRef stream = StreamRef::cpu();

  void add_span(TraceLane lane, const char* name, Clock::time_point begin) {
    add_span(lane, name, begin, hop);
  }
  void add_span(TraceLane lane, const char* name, Clock::time_point begin, std::int64_t of_hop) {
    if (trace != nullptr) trace->add({lane, name, layer, of_hop, begin, Clock::now()});
  }
  // Blocks until the transfer is complete; the time counts as waiting for rank `peer` of comm.
  void wait(Transfer& transfer, std::int64_t peer) {
    if (transfer.test()) return;
    const PhaseTimer timer(times, Phase::kRingWait);
    const WaitMark mark(board, comm.job_rank_of(static_cast<int>(peer)));
    const auto begin = Clock::now();
    transfer.wait();
    add_span(TraceLane::kWait, "wait", begin);
  }
  void set_layer(std::int64_t number) {
    layer = number;
    if (board != nullptr) board->set_layer(number);
  }
  void set_hop(std::int64_t number) {
    hop = number;
    if (board != nullptr) board->set_hop(number);
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
