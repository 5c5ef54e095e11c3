#include "worker/phase_clock.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace longhaul {

std::optional<Phase> PhaseClock::enter(std::optional<Phase> phase) {
  const std::optional<Phase> before = std::exchange(phase_, phase);
  if (stream_.device() == Device::kCpu) {
    if (before) total_[*before] += since_.seconds();
    since_ = {};
  } else if (phase || before == Phase::kRingWait) {
    mark(phase);
  }
  return before;
}

void PhaseClock::mark(std::optional<Phase> phase) {
  if (n_of_step_ > 0 && marks_.back().phase == phase) return;
  if (stream_.cuda_stream().open_step() != nullptr) return;
  if (unused_.empty()) unused_.emplace_back();
  unused_.back().record(stream_.cuda_stream());
  marks_.push_back({std::move(unused_.back()), phase});
  unused_.pop_back();
  ++n_of_step_;
}

void PhaseClock::end_step() {
  if (stream_.device() == Device::kCpu || n_of_step_ == 0) return;
  mark(std::nullopt);
  n_.push_back(std::exchange(n_of_step_, 0));
  add_done_steps();
}

void PhaseClock::add_done_steps() {
  while (!n_.empty() && marks_[n_.front() - 1].event.is_done()) add_step();
}

// The first of those that are over; done.
void PhaseClock::add_step() {
  const std::size_t n = n_.front();
  for (std::size_t i = 0; i + 1 < n; ++i) {
    if (!marks_[i].phase) continue;
    total_[*marks_[i].phase] += marks_[i + 1].event.milliseconds_since(marks_[i].event) / 1e3;
  }
  for (std::size_t i = 0; i < n; ++i) {
    unused_.push_back(std::move(marks_.front().event));
    marks_.pop_front();
  }
  n_.pop_front();
}

const PhaseTimes& PhaseClock::total() {
  while (!n_.empty()) {
    stream_.cuda_stream().finish(marks_[n_.front() - 1].event);
    add_step();
  }
  return total_;
}

PhaseTimer::~PhaseTimer() {
  try {
    clock_.enter(outer_);
  } catch (const std::exception& error) {  // a failure of the GPU, which its next call throws
    LONGHAUL_LOG(kWarning, kStep, "phase times: {}", error.what());
  }
}

}  // namespace longhaul
