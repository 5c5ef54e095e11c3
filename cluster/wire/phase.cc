#include "cluster/wire/phase.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace longhaul {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string_view name_of(Activity activity) {
  switch (activity) {
    case Activity::kStarting:
      return "starting";
    case Activity::kIdle:
      return "idle";
    case Activity::kComputing:
      return "computing";
    case Activity::kWaiting:
      return "waiting";
    case Activity::kLoading:
      return "loading weights";
    case Activity::kSaving:
      return "saving";
  }
  return "unknown";
}

std::string to_text(const PhaseReport& phase) {
  std::string place;
  const auto add = [&](std::string_view name, std::int64_t value) {
    if (value >= 0) place += fmt::format("{}{} {}", place.empty() ? "" : ", ", name, value);
  };
  add("step", phase.step);
  add("layer", phase.layer.value);
  add("hop", phase.hop);
  std::string doing(name_of(phase.activity));
  if (phase.activity == Activity::kWaiting && phase.peer.value >= 0)
    doing += fmt::format(" for rank {}", phase.peer.value);
  return fmt::format("{}{}{} since {} s", place, place.empty() ? "" : ": ", doing,
                     phase.since_ms / 1000);
}

PhaseBoard::PhaseBoard() { touch(); }

void PhaseBoard::enter(Activity activity, Rank peer) {
  activity_.store(activity, std::memory_order_relaxed);
  peer_.store(peer.value, std::memory_order_relaxed);
  touch();
}

void PhaseBoard::set_step(std::int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  layer_.store(-1, std::memory_order_relaxed);
  hop_.store(-1, std::memory_order_relaxed);
  touch();
}

void PhaseBoard::set_layer(LayerId layer) {
  layer_.store(layer.value, std::memory_order_relaxed);
  hop_.store(-1, std::memory_order_relaxed);
  touch();
}

void PhaseBoard::set_hop(std::int64_t hop) {
  hop_.store(hop, std::memory_order_relaxed);
  touch();
}

void PhaseBoard::touch() { since_ns_.store(now_ns(), std::memory_order_relaxed); }

PhaseReport PhaseBoard::read() const {
  PhaseReport phase;
  phase.activity = activity_.load(std::memory_order_relaxed);
  phase.step = step_.load(std::memory_order_relaxed);
  phase.layer = {layer_.load(std::memory_order_relaxed)};
  phase.hop = hop_.load(std::memory_order_relaxed);
  phase.peer = {peer_.load(std::memory_order_relaxed)};
  phase.since_ms = (now_ns() - since_ns_.load(std::memory_order_relaxed)) / 1'000'000;
  return phase;
}

}  // namespace longhaul
