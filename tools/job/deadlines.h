// How long the parts of a job wait for each other. Pure.
#pragma once
#include <chrono>

#include "cluster/wire/control_plane.h"
#include "tools/job/job_config.h"

namespace longhaul {

// How long a rank waits for data of another: longer than the coordinator waits for a step, because
// the coordinator can say what every rank is doing.
std::chrono::milliseconds transfer_deadline(const JobConfig& config);

// Heartbeats at least five times as often as silence counts as death.
ControlTimes control_times(const JobConfig& config);

}  // namespace longhaul
