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
//
//   [link]                     # between two ranks
//   within_host_gb_per_s = 20.0
//   within_host_latency_us = 2.0
//   between_hosts_gb_per_s = 12.0
//   between_hosts_latency_us = 5.0
//
// Only memory is required. GB are 10^9 bytes; sizes as in partition/byte_size.h. Without speeds all
// ranks count as equal, and predicted times are only as good as the defaults below.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace longhaul {

struct RankSpec {
  std::string host;
  std::int64_t memory_bytes = 0;
  double gflops = 500.0;          // 10^9 floating-point operations a second
  double memory_gb_per_s = 50.0;  // 10^9 bytes a second
  bool operator==(const RankSpec&) const = default;
};

struct LinkSpec {
  double within_host_gb_per_s = 10.0;
  double within_host_latency_us = 2.0;
  double between_hosts_gb_per_s = 1.2;  // 10 Gbit Ethernet
  double between_hosts_latency_us = 30.0;
  bool operator==(const LinkSpec&) const = default;
};

struct ClusterSpec {
  std::vector<RankSpec> ranks;  // indexed by Rank
  LinkSpec link;
  double headroom = 0.05;     // part of each rank's memory that plans leave alone
  bool speeds_known = false;  // false when any rank has default speeds

  const RankSpec& rank(Rank r) const { return ranks[static_cast<std::size_t>(r.value)]; }
  std::int64_t n_ranks() const { return static_cast<std::int64_t>(ranks.size()); }
  // What a plan may fill: memory less headroom.
  std::int64_t usable_bytes(Rank r) const;
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

}  // namespace longhaul
