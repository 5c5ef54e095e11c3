// The pure part of the control plane: who is to blame, and how to say it.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/wire/control_plane.h"

namespace longhaul {

std::chrono::nanoseconds time_held_up(const ControlTimes& times, std::chrono::nanoseconds waited) {
  return waited > 2 * times.heartbeat_period ? waited - times.heartbeat_period
                                             : std::chrono::nanoseconds(0);
}

std::string to_text(const WorkerStatus& status) {
  const std::string where = status.host.empty() ? "" : fmt::format(" on {}", status.host);
  if (!status.connected)
    return fmt::format("rank {}{}: not connected; last known {}", status.rank.value, where,
                       to_text(status.phase));
  std::string text = fmt::format("rank {}{}: {}", status.rank.value, where, to_text(status.phase));
  if (status.silent_ms >= 5000)
    text += fmt::format(", not heard of for {} s", status.silent_ms / 1000);
  return text;
}

std::vector<Rank> suspects(const std::vector<WorkerStatus>& statuses) {
  std::vector<Rank> found;
  const auto waits = [](const WorkerStatus& s) { return s.phase.activity == Activity::kWaiting; };
  for (const WorkerStatus& status : statuses) {
    const bool waited_for = std::any_of(
        statuses.begin(), statuses.end(),
        [&](const WorkerStatus& other) { return waits(other) && other.phase.peer == status.rank; });
    if (waited_for && !waits(status)) found.push_back(status.rank);
  }
  if (!found.empty()) return found;
  for (const WorkerStatus& status : statuses) {
    if (status.phase.activity != Activity::kIdle) found.push_back(status.rank);
  }
  return found;
}

std::string describe_hang(const std::vector<WorkerStatus>& statuses) {
  std::string text = "a step did not end before its deadline; ";
  for (const Rank rank : suspects(statuses)) {
    for (const WorkerStatus& status : statuses) {
      if (status.rank == rank) text += to_text(status) + "; ";
    }
  }
  return text + "raise --step-timeout if this is only slow";
}

}  // namespace longhaul
