#include "tools/job/rank_probe.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

#include "base/device/device_cuda.h"
#include "base/log.h"
#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/mpi_environment.h"
#include "kernels/cpu/threads.h"
#include "tools/job/link_probe.h"
#include "tools/job/memory_probe.h"
#include "tools/job/numa_advice.h"
#include "tools/job/speed_probe.h"

namespace longhaul {
namespace {

// What a rank tells the others, as bytes.
struct Probe {
  std::array<char, 256> host{};  // ends with 0
  cpu_set_t cores{};
  std::int64_t process = 0;
  std::int64_t n_alone = 1;
  std::int64_t n_threads = 1;                                         // that its kernels take
  std::int64_t memory_bytes = 0;                                      // of the host or the GPU
  std::int64_t own_bytes = std::numeric_limits<std::int64_t>::max();  // the most for this process
  std::int64_t process_bytes = 0;  // that the process takes of both, whatever the plan is
  double gflops = 0;
  double memory_gb_per_s = 0;
  std::int64_t gpu = -1;  // its number on the host; -1: none
  cuda::GpuId gpu_id;     // what its bytes and speeds are of, then

  bool shares_memory_with(const Probe& other) const {
    if ((gpu < 0) != (other.gpu < 0)) return false;
    return gpu < 0 ? host_name() == other.host_name() : gpu_id == other.gpu_id;
  }
  std::string_view host_name() const { return host.data(); }
  std::string_view core_bytes() const {
    return {reinterpret_cast<const char*>(&cores), sizeof cores};
  }
};
static_assert(std::is_trivially_copyable_v<Probe>);

Probe probe_identity(int gpu) {
  Probe probe;
  const std::string host = hostname();
  std::memcpy(probe.host.data(), host.data(), std::min(host.size(), probe.host.size() - 1));
  if (::sched_getaffinity(0, sizeof probe.cores, &probe.cores) != 0) CPU_SET(0, &probe.cores);
  probe.process = ::getpid();
  set_kernel_threads(0);
  probe.n_alone = kernel_threads();
  if (gpu < 0) {
    probe.memory_bytes = shared_memory_left();
    probe.own_bytes = address_space_left().value_or(probe.own_bytes);
    probe.process_bytes = started_by_mpi_launcher() ? kMpiProcessBytes : kProcessBytes;
  } else {
    probe.gpu = gpu;
    probe.gpu_id = cuda::gpu_id(gpu);
    probe.memory_bytes = static_cast<std::int64_t>(cuda::device_info(gpu).free_bytes);
  }
  return probe;
}

std::vector<Probe> gather(Communicator& comm, const Probe& mine) {
  std::vector<Probe> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

std::vector<ThreadClaim> claims_of(const std::vector<Probe>& probes) {
  std::vector<ThreadClaim> claims;
  for (const Probe& p : probes)
    claims.push_back({p.host_name(), p.process, p.core_bytes(), CPU_COUNT(&p.cores),
                      static_cast<int>(p.n_alone)});
  return claims;
}

// Ranks of one host with as many threads, or with a GPU each, are equal: where they measured
// differently, something else was running.
void equalise_hosts(const std::vector<Probe>& probes, std::vector<double>& speeds) {
  const std::vector<double> measured = speeds;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    std::vector<double> like;
    for (std::size_t j = 0; j < probes.size(); ++j) {
      if (probes[j].host_name() == probes[i].host_name() &&
          probes[j].n_threads == probes[i].n_threads &&
          (probes[j].gpu < 0) == (probes[i].gpu < 0)) {
        like.push_back(measured[j]);
      }
    }
    std::sort(like.begin(), like.end());
    speeds[i] = like[like.size() / 2];
  }
}

// What the processes of a rank's host take, all together.
std::int64_t processes_of_host(const std::vector<Probe>& probes, const Probe& rank) {
  std::int64_t bytes = 0;
  std::vector<std::int64_t> seen;
  for (const Probe& other : probes) {
    if (!other.shares_memory_with(rank)) continue;
    if (std::find(seen.begin(), seen.end(), other.process) != seen.end()) continue;
    seen.push_back(other.process);
    bytes += other.process_bytes;
  }
  return bytes;
}

// The first rank of each host.
std::vector<int> first_of_hosts(const std::vector<Probe>& probes) {
  std::vector<int> first;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const bool is_new = std::none_of(first.begin(), first.end(), [&](int rank) {
      return probes[static_cast<std::size_t>(rank)].host_name() == probes[i].host_name();
    });
    if (is_new) first.push_back(static_cast<int>(i));
  }
  return first;
}

ClusterSpec cluster_of(const std::vector<Probe>& probes, bool speeds_known) {
  ClusterSpec cluster;
  cluster.speeds_known = speeds_known;
  std::vector<double> gflops, gb_per_s;
  for (const Probe& p : probes) {
    // Each rank saw the memory of the whole host or GPU, at about the same moment.
    std::int64_t memory = p.memory_bytes;
    std::int64_t n_local = 0;
    std::int64_t n_in_process = 0;
    for (const Probe& other : probes) {
      if (!other.shares_memory_with(p)) continue;
      memory = std::min(memory, other.memory_bytes);
      ++n_local;
      if (other.process == p.process) ++n_in_process;
    }
    RankSpec& rank = cluster.ranks.emplace_back();
    rank.host = std::string(p.host_name());
    // Threads of one process take what a process takes once.
    rank.memory_bytes = std::min((memory - processes_of_host(probes, p)) / n_local,
                                 (p.own_bytes - p.process_bytes) / n_in_process);
    rank.memory_bytes = std::max<std::int64_t>(1, rank.memory_bytes);
    if (p.gpu >= 0) {
      rank.device = Device::kCuda;
      rank.gpu = static_cast<int>(p.gpu);
      rank.gflops = kDefaultGpuGflops;
      rank.memory_gb_per_s = kDefaultGpuGbPerS;
    }
    gflops.push_back(p.gflops);
    gb_per_s.push_back(p.memory_gb_per_s);
  }
  if (!speeds_known) return cluster;
  equalise_hosts(probes, gflops);
  equalise_hosts(probes, gb_per_s);
  gflops = steadied(gflops);
  gb_per_s = steadied(gb_per_s);
  for (std::size_t i = 0; i < cluster.ranks.size(); ++i) {
    cluster.ranks[i].gflops = gflops[i];
    cluster.ranks[i].memory_gb_per_s = gb_per_s[i];
  }
  return cluster;
}

}  // namespace

std::vector<double> steadied(const std::vector<double>& speeds) {
  if (speeds.empty()) return {};
  std::vector<double> sorted = speeds;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  std::vector<double> steady = speeds;
  for (double& speed : steady) {
    if (speed >= 0.75 * median && speed <= 1.25 * median) speed = median;
  }
  return steady;
}

int threads_for(const std::vector<ThreadClaim>& claims, std::size_t rank) {
  const ThreadClaim& mine = claims.at(rank);
  const bool user_said = mine.n_alone < mine.n_cores;
  const auto shares = [&](const ThreadClaim& other) {
    if (other.host != mine.host) return false;
    return user_said ? other.process == mine.process : other.cores == mine.cores;
  };
  const auto n_sharing = static_cast<int>(std::count_if(claims.begin(), claims.end(), shares));
  return std::max(1, mine.n_alone / n_sharing);
}

ProbedCluster probe_cluster(Communicator& comm, const ProbeConfig& config) {
  Probe mine = probe_identity(config.gpu);
  std::vector<Probe> all = gather(comm, mine);
  ProbedCluster probed;
  probed.n_threads = config.n_threads > 0
                         ? config.n_threads
                         : threads_for(claims_of(all), static_cast<std::size_t>(comm.rank()));
  if (const auto advice = numa_advice(numa_nodes_of(mine.cores), probed.n_threads)) {
    LONGHAUL_LOG(kWarning, kRun, "rank {} on {}: {}", comm.rank(), mine.host_name(), *advice);
  }
  if (config.measure_speed) {
    set_kernel_threads(probed.n_threads);
    mine.n_threads = probed.n_threads;
    comm.barrier();  // all measure at once
    const MeasuredSpeed speed = measure_speed(config.weight_dtype, config.gpu);
    mine.gflops = speed.gflops;
    mine.memory_gb_per_s = speed.memory_gb_per_s;
    all = gather(comm, mine);
  }
  probed.cluster = cluster_of(all, config.measure_speed);
  if (config.measure_speed) set_links(measure_links(comm, first_of_hosts(all)), probed.cluster);
  return probed;
}

}  // namespace longhaul
