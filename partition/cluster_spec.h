// What the planner knows of a cluster: ranks with memory and speed, links with bandwidth and
// latency. Probed at start, made by equal_cluster, or written by hand in TOML, also for clusters
// that do not exist yet:
//
//   headroom = 0.05            # part of each rank's memory that plans leave alone
//
//   [[node]]                   # as often as needed; ranks are numbered in this order
//   name = "big"               # hosts are called big, or big-0, big-1, ... when count > 1
//   count = 1                  # so many equal nodes (default 1)
//   ranks = 2                  # ranks on each (default 1)
//   memory = "512 GiB"         # of the node; its ranks share it equally
//   gflops = 2000.0            # of each rank, on the model's matrix products
//   gb_per_s = 150.0           # of each rank, reading memory
//   attention_gflops = 900.0   # of each rank, on attention (default: as gflops)
//
//   [[node]]                   # ranks on GPUs
//   name = "gpus"
//   gpus = 4                   # of the node; its ranks are on them in turn: rank i on GPU i % gpus
//   gpu_memory = "80 GiB"      # of each GPU; the ranks on it share it equally
//   ranks = 4                  # default: one for each GPU
//   gflops = 300000.0          # of each rank, on its GPU (or its part of one); so gb_per_s
//
//   [link]                     # between two ranks
//   within_host_gb_per_s = 20.0
//   within_host_latency_us = 2.0
//   between_hosts_gb_per_s = 12.0
//   between_hosts_latency_us = 5.0
//
//   [[host_link]]              # between two hosts where it differs from that
//   hosts = ["big-0", "far"]
//   gb_per_s = 0.1
//   latency_us = 400.0
//
// Only memory (of a node with GPUs: gpu_memory) is required. GB are 10^9 bytes; sizes as in
// base/sizes.h. Without speeds all ranks of one kind of device count as equal, and
// predicted times are only as good as the defaults below. Nodes of one name are one host: a second
// table puts ranks on the CPUs of a node that has GPUs, or, where it says same_host = true, other
// ranks on devices of the same kind.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/device/device.h"
#include "base/ids.h"
#include "base/indexed_vector.h"

namespace longhaul {

struct RankSpec {
  std::string host;
  std::int64_t memory_bytes = 0;  // of its device: the host's, or its part of its GPU's
  double gflops = 500.0;          // 10^9 floating-point operations a second, on matrix products
  double memory_gb_per_s = 50.0;  // 10^9 bytes a second
  Device device = Device::kCpu;
  int gpu = 0;                  // kCuda only: which of its host's
  double attention_gflops = 0;  // on attention; 0: as gflops
  double attention_speed() const { return attention_gflops > 0 ? attention_gflops : gflops; }
  bool operator==(const RankSpec&) const = default;
};
// What a rank on a GPU has where nothing is known.
inline constexpr double kDefaultGpuGflops = 100'000.0;
inline constexpr double kDefaultGpuGbPerS = 1500.0;

// Less is no rank's memory, but a number whose unit was forgotten.
inline constexpr std::int64_t kLeastMemory = 1 << 20;
// Of so many bytes, as they were written: "16 is 16 B: too little for any rank; did you mean 16G?"
std::string too_little_memory(std::string_view text, std::int64_t bytes);

// "CPU", "GPU 2"
std::string device_name(const RankSpec& rank);

struct LinkSpec {
  double within_host_gb_per_s = 10.0;
  double within_host_latency_us = 2.0;
  double between_hosts_gb_per_s = 1.2;  // 10 Gbit Ethernet
  double between_hosts_latency_us = 30.0;
  bool operator==(const LinkSpec&) const = default;
};

// Bandwidth and latency between two hosts, both ways, where they differ from LinkSpec's.
struct HostLink {
  std::string host_a;
  std::string host_b;
  double gb_per_s = 0;
  double latency_us = 0;
  bool operator==(const HostLink&) const = default;
};

// What a message between two ranks gets.
struct Wire {
  double gb_per_s = 0;
  double latency_us = 0;
};

struct ClusterSpec {
  std::vector<RankSpec> ranks;  // indexed by Rank
  LinkSpec link;
  std::vector<HostLink> host_links;
  double headroom = 0.05;     // part of each rank's memory that plans leave alone
  bool speeds_known = false;  // false when any rank has default speeds

  const RankSpec& rank(Rank r) const { return ranks[static_cast<std::size_t>(r.value)]; }
  std::int64_t n_ranks() const { return static_cast<std::int64_t>(ranks.size()); }
  bool has_gpus() const;
  // What a plan may fill: memory less headroom.
  std::int64_t usable_bytes(Rank r) const;
  // From one host to another, or within it.
  Wire wire(std::string_view host_a, std::string_view host_b) const;
  // The worst of those that neighbours of a ring have, and the worst of any two of its ranks.
  Wire ring_wire(const IndexedVector<RingPos, Rank>& ring) const;
  Wire worst_wire(const IndexedVector<RingPos, Rank>& ring) const;
  // Throws kInvalidArgument naming the first rank and value that make no sense.
  void validate() const;
  bool operator==(const ClusterSpec&) const = default;
};

// n_ranks equal ranks, ranks_per_host of them on each host.
ClusterSpec equal_cluster(std::int64_t n_ranks, std::int64_t memory_bytes,
                          std::int64_t ranks_per_host = 1);

// Parses the form above. `source` names the text in errors. Throws kCorruptData with source, line,
// key and reason; unknown keys are refused.
ClusterSpec parse_cluster_toml(std::string_view text, std::string_view source);

// The form above: what is read back is the same cluster, but for the numbers of GPUs of
// a host whose ranks differ.
std::string cluster_to_toml(const ClusterSpec& cluster);

}  // namespace longhaul
