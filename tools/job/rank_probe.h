// What the ranks of a job find out about themselves when it starts: host, device, memory, speed,
// threads, and how fast the hosts reach each other. All ranks measure at the same time, because
// those of one host share its cores and its memory's bandwidth, and those on one GPU that.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "cluster/comm/communicator.h"
#include "partition/cluster_spec.h"

namespace longhaul {

struct ProbeConfig {
  bool measure_speed = true;          // of ranks, about 0.2 s, and of links between hosts
  DType weight_dtype = DType::kBf16;  // kF32, kBf16, kI8, kI4 or kF8E4m3: of the matrix products
  int n_threads = 0;                  // of each rank's kernels; 0: the host's cores, divided
  int gpu = -1;                       // that this rank computes on; -1: on CPUs
};

struct ProbedCluster {
  ClusterSpec cluster;  // the same on all ranks
  int n_threads = 1;    // for this rank's kernels
};

// Collective over comm. Takes the kernels of the calling thread for as long as it lasts.
ProbedCluster probe_cluster(Communicator& comm, const ProbeConfig& config);

// --- The pure parts ---

// Speeds that lie within a quarter of their median become the median: measurements of equal
// machines differ by that much, and equal speeds make even shares and the same plan every time.
std::vector<double> steadied(const std::vector<double>& speeds);

// How many threads each rank may have, given for each: its host, its process, the cores that it may
// use (a set as text) and how many threads its kernels would take if it were alone.
struct ThreadClaim {
  std::string_view host;
  std::int64_t process = 0;
  std::string_view cores;
  int n_cores = 1;
  int n_alone = 1;  // fewer than n_cores: the user said so (OMP_NUM_THREADS), for each process
};
int threads_for(const std::vector<ThreadClaim>& claims, std::size_t rank);

}  // namespace longhaul
