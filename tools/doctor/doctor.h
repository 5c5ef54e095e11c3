// `longhaul doctor`: is this cluster fit for a job? Alone, under mpirun, under srun.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/doctor/rank_facts.h"
#include "tools/job/job_config.h"

namespace longhaul {

struct DoctorConfig {
  JobConfig job;              // interfaces, start_timeout
  std::string scratch = ".";  // a folder to write to
  // The model's fingerprint; empty where none was asked for. Throws what opening throws.
  std::function<Json()> open_model;
};

// Calls `print` on rank 0 with what was found. Returns the exit status: kExitEnvironment when
// anything failed. Ends the process itself where ranks cannot reach each other.
int run_doctor(const DoctorConfig& config,
               const std::function<void(const std::vector<Finding>&)>& print);

}  // namespace longhaul
