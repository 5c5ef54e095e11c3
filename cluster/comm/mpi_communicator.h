// Ranks as the processes that mpirun or srun started. No <mpi.h> here.
#pragma once
#include <memory>

#include "cluster/comm/communicator.h"

namespace longhaul {

// The kMpi part of make_communicator. Collective over all processes.
std::unique_ptr<Communicator> make_mpi_communicator(const CommunicatorConfig& config);

}  // namespace longhaul
