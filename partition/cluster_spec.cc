#include "partition/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/sizes.h"

namespace longhaul {
namespace {

Wire worse(const Wire& a, const Wire& b) {
  return {std::min(a.gb_per_s, b.gb_per_s), std::max(a.latency_us, b.latency_us)};
}

}  // namespace

std::string too_little_memory(std::string_view text, std::int64_t bytes) {
  const bool is_number = text.find_first_not_of("0123456789") == std::string_view::npos;
  return fmt::format("{} is {}: too little for any rank{}", text, format_byte_size(bytes),
                     is_number && bytes > 0 ? fmt::format("; did you mean {}G?", text) : "");
}

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

Wire ClusterSpec::wire(std::string_view host_a, std::string_view host_b) const {
  if (host_a == host_b) return {link.within_host_gb_per_s, link.within_host_latency_us};
  for (const HostLink& other : host_links) {
    if ((other.host_a == host_a && other.host_b == host_b) ||
        (other.host_a == host_b && other.host_b == host_a)) {
      return {other.gb_per_s, other.latency_us};
    }
  }
  return {link.between_hosts_gb_per_s, link.between_hosts_latency_us};
}

Wire ClusterSpec::ring_wire(const IndexedVector<RingPos, Rank>& ring) const {
  Wire worst = {link.within_host_gb_per_s, link.within_host_latency_us};
  bool first = true;
  for (const RingPos i : ring.ids()) {
    const RingPos next{(i.value + 1) % ring.n()};
    const Wire between = wire(rank(ring[i]).host, rank(ring[next]).host);
    worst = first ? between : worse(worst, between);
    first = false;
  }
  return worst;
}

Wire ClusterSpec::worst_wire(const IndexedVector<RingPos, Rank>& ring) const {
  Wire worst = ring_wire(ring);
  if (host_links.empty()) return worst;
  std::set<std::string_view> hosts;
  for (const Rank r : ring) hosts.insert(rank(r).host);
  for (const HostLink& between : host_links) {
    if (hosts.contains(between.host_a) && hosts.contains(between.host_b))
      worst = worse(worst, {between.gb_per_s, between.latency_us});
  }
  return worst;
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
    require(r.attention_gflops >= 0 && std::isfinite(r.attention_gflops),
            fmt::format("cluster: rank {} ({}): {} GFLOP/s on attention", i, r.host,
                        r.attention_gflops));
  }
  const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
  require(positive(link.within_host_gb_per_s) && positive(link.between_hosts_gb_per_s) &&
              link.within_host_latency_us >= 0 && link.between_hosts_latency_us >= 0,
          "cluster: link: bandwidths must be positive and latencies not negative");
  for (const HostLink& between : host_links) {
    require(between.host_a != between.host_b && positive(between.gb_per_s) &&
                between.latency_us >= 0 && std::isfinite(between.latency_us),
            fmt::format("cluster: between {} and {}: {} GB/s, {} us", between.host_a,
                        between.host_b, between.gb_per_s, between.latency_us));
  }
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
