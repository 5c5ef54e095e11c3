#include "partition/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longhaul {

std::string device_name(const RankSpec& rank) {
  switch (rank.device) {
    case Device::kCpu:
      return "CPU";
    case Device::kCuda:
      return fmt::format("GPU {}", rank.gpu);
  }
  throw Error(ErrorCode::kInternal, "unknown device");
}

bool ClusterSpec::has_gpus() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankSpec& r) { return r.device == Device::kCuda; });
}

std::int64_t ClusterSpec::usable_bytes(Rank r) const {
  const std::int64_t memory = rank(r).memory_bytes;
  return memory - static_cast<std::int64_t>(std::ceil(static_cast<double>(memory) * headroom));
}

void ClusterSpec::validate() const {
  require(!ranks.empty(), "cluster: no ranks");
  require(headroom >= 0 && headroom < 1,
          fmt::format("cluster: headroom is {}, must be in [0, 1)", headroom));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankSpec& r = ranks[i];
    require(r.memory_bytes > 0 && r.memory_bytes <= std::int64_t{1} << 52,
            fmt::format("cluster: rank {} ({}): memory of {} bytes", i, r.host, r.memory_bytes));
    require(r.gpu >= 0 && (r.device == Device::kCuda || r.gpu == 0),
            fmt::format("cluster: rank {} ({}): GPU {} of a rank on its {}", i, r.host, r.gpu,
                        r.device == Device::kCuda ? "GPU" : "CPU"));
    require(
        r.gflops > 0 && std::isfinite(r.gflops) && r.memory_gb_per_s > 0 &&
            std::isfinite(r.memory_gb_per_s),
        fmt::format("cluster: rank {} ({}): speeds must be positive, not {} GFLOP/s and {} GB/s", i,
                    r.host, r.gflops, r.memory_gb_per_s));
  }
  const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
  require(positive(link.within_host_gb_per_s) && positive(link.between_hosts_gb_per_s) &&
              link.within_host_latency_us >= 0 && link.between_hosts_latency_us >= 0,
          "cluster: link: bandwidths must be positive and latencies not negative");
}

ClusterSpec equal_cluster(std::int64_t n_ranks, std::int64_t memory_bytes,
                          std::int64_t ranks_per_host) {
  require(n_ranks > 0 && ranks_per_host > 0, "cluster: needs at least one rank");
  ClusterSpec cluster;
  for (std::int64_t r = 0; r < n_ranks; ++r) {
    cluster.ranks.push_back(
        {.host = fmt::format("node-{}", r / ranks_per_host), .memory_bytes = memory_bytes});
  }
  cluster.validate();
  return cluster;
}

}  // namespace longhaul
