// What each rank finds out about its host and itself for `longhaul doctor`. Facts only; what they
// mean is judged in one place (judge.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace longhaul {

struct RankFacts {
  std::string host;
  Json program;              // version, parts, SHA-256
  std::string mpi;           // the library's version; "" without MPI
  std::int64_t n_tasks = 0;  // that Slurm started; 0: not by Slurm
  std::string instruction_set;
  std::vector<std::int64_t> cores;       // that this process may use
  std::vector<std::int64_t> numa_nodes;  // that they belong to
  std::int64_t free_memory = 0;          // bytes, as plans count it
  std::int64_t n_host_cores = 0;         // that the host has
  std::int64_t host_memory = 0;          // bytes that the host has
  std::int64_t free_shared_memory = 0;   // bytes of /dev/shm
  std::int64_t n_descriptors = 0;        // soft limit
  bool unlimited_stack = false;
  std::string scratch_error;       // "" where writing, syncing, locking and renaming worked
  double scratch_mb_per_s = 0;     // 10^6 bytes, written and synced
  bool sees_scratch_of_0 = false;  // the file that rank 0 left in the same folder
  bool has_hdf5 = true;            // the build
  std::string hdf5_error;          // "" where a file was written and read back
  std::vector<std::string> gpus;   // "NVIDIA H200, 139 GiB", that this process may use
  std::string why_no_gpus;         // where there are none
  std::string gpu_error;           // "" where those that are there answer
  std::string nccl;                // its version; "" where it cannot be opened
  std::string why_no_nccl;         // then
  std::string model_error;         // "" where it opened, or none was asked for
  Json model;                      // its fingerprint; null: none was asked for
};
Json to_json(const RankFacts& facts);
// Throws kCorruptData.
RankFacts facts_from(const Json& json);

// Of this process; all but scratch, HDF5 and model. Reads /proc, /sys and /dev.
RankFacts facts_of_this_rank();

// Writes 16 MiB to a new file in `folder`, syncs, locks and renames it, reads it back and removes
// it; then a small file of HDF5. Fills in the scratch fields, but for sees_scratch_of_0, and
// hdf5_error.
void try_scratch(const std::string& folder, int rank, RankFacts& facts);

}  // namespace longhaul
