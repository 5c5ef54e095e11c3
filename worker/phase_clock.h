// Counts where a step's time goes, phase by phase. On a CPU it reads the clock. On a GPU, where
// work is only queued, it puts events between the phases' work, and their distances are read when
// the step is done: a phase has the time from its first work to the next phase's, with what the GPU
// waited for the host meanwhile.
//
//   queue   events of step 1 | project | attend | events' end     later: times of step 1 are added
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/device/device.h"
#include "base/device/device_cuda.h"
#include "worker/phase_times.h"

namespace longhaul {

// Used by one thread, that of the stream, which must outlive it.
class PhaseClock {
 public:
  explicit PhaseClock(StreamRef stream) : stream_(stream) {}

  // What is done or queued from now on is of this phase, or of none. Gives the one before: phases
  // nest, and the time of an inner one is not the outer one's. On a GPU work of no phase counts as
  // that of the phase before it, but not what follows a wait for other ranks: it saves events. Work
  // that is noted (base/device/step_graph.h) is of the phase in which that began.
  std::optional<Phase> enter(std::optional<Phase> phase);
  // The step is over: what the GPU does not do until the next one is of no phase.
  void end_step();

  // Of all steps. On a GPU blocks until they are done.
  const PhaseTimes& total();

 private:
  struct Mark {
    cuda::Event event;
    std::optional<Phase> phase;  // of the work that follows
  };
  void mark(std::optional<Phase> phase);
  void add_done_steps();
  void add_step();

  StreamRef stream_;
  PhaseTimes total_;
  std::optional<Phase> phase_;
  Stopwatch since_;            // on CPUs: since phase_ was entered
  std::deque<Mark> marks_;     // of steps that are not in total_, in the queue's order
  std::deque<std::size_t> n_;  // marks of each of them that is over
  std::size_t n_of_step_ = 0;  // marks of the one under way
  std::vector<cuda::Event> unused_;
};

// The time of its scope is a phase's.
class PhaseTimer {
 public:
  PhaseTimer(PhaseClock& clock, Phase phase) : clock_(clock), outer_(clock.enter(phase)) {}
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  PhaseClock& clock_;
  std::optional<Phase> outer_;
};

}  // namespace longhaul
