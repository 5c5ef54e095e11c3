// The check for results of MPI calls. Included by mpi*.cc only.
#pragma once
#include <mpi.h>

#include <source_location>
#include <string_view>

namespace longhaul {

// Throws kMpi "<what>: <MPI's text>" unless `result` is MPI_SUCCESS.
void check_mpi(int result, std::string_view what,
               std::source_location where = std::source_location::current());

}  // namespace longhaul
