// Which machine each rank runs on, for printing and for choosing a device.
#pragma once
#include <string>
#include <vector>

#include "cluster/comm/communicator.h"

namespace longhaul {

struct HostInfo {
  std::string hostname;
  int local_rank = 0;                  // this rank's number among those on the same host
  int n_local = 1;                     // ranks on the same host
  int n_hosts = 1;                     // in the whole communicator
  std::vector<std::string> hostnames;  // [size] of every rank
};

// This machine's name, up to the first dot. Local.
std::string hostname();

// Collective over comm. The launcher's local rank (Open MPI, Slurm) where every rank is a process
// of its own and has one; else ranks with equal host names count as being together.
HostInfo host_info(Communicator& comm);

}  // namespace longhaul
