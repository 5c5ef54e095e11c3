// Writes a cluster as TOML (partition/cluster_spec.h): a table for each run of equal ranks of a
// host.
#include <fmt/format.h>

#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "partition/cluster_spec.h"

namespace longhaul {
namespace {

std::string quoted(const std::string& text) { return to_text(Json(text)); }

// TOML tells whole numbers from others.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// The ranks after `first` that differ from it in nothing but the number of their GPU.
std::size_t end_of_alike(const ClusterSpec& cluster, std::size_t first) {
  std::size_t end = first + 1;
  for (; end < cluster.ranks.size(); ++end) {
    RankSpec like = cluster.ranks[first];
    if (like.device == Device::kCuda) like.gpu = static_cast<int>(end - first);
    if (!(like == cluster.ranks[end])) break;
  }
  return end;
}

// `again`: a table before is about such devices of the same host.
void add_node(std::string& text, const RankSpec& rank, std::size_t n_ranks, bool again) {
  const auto n = static_cast<std::int64_t>(n_ranks);
  auto out = std::back_inserter(text);
  fmt::format_to(out, "\n[[node]]\nname = {}\nranks = {}\n", quoted(rank.host), n);
  if (again) text += "same_host = true\n";
  if (rank.device == Device::kCuda) {
    fmt::format_to(out, "gpus = {}\ngpu_memory = {}\n", n, rank.memory_bytes);
  } else {
    fmt::format_to(out, "memory = {}\n", n * rank.memory_bytes);
  }
  fmt::format_to(out, "gflops = {}\ngb_per_s = {}\n", number(rank.gflops),
                 number(rank.memory_gb_per_s));
  if (rank.attention_gflops > 0)
    fmt::format_to(out, "attention_gflops = {}\n", number(rank.attention_gflops));
}

}  // namespace

std::string cluster_to_toml(const ClusterSpec& cluster) {
  std::string text = fmt::format("headroom = {}\n", number(cluster.headroom));
  std::set<std::pair<std::string, Device>> named;
  for (std::size_t i = 0; i < cluster.ranks.size();) {
    const std::size_t end = end_of_alike(cluster, i);
    const RankSpec& rank = cluster.ranks[i];
    add_node(text, rank, end - i, !named.emplace(rank.host, rank.device).second);
    i = end;
  }
  const LinkSpec& link = cluster.link;
  text += fmt::format(
      "\n[link]\nwithin_host_gb_per_s = {}\nwithin_host_latency_us = {}\n"
      "between_hosts_gb_per_s = {}\nbetween_hosts_latency_us = {}\n",
      number(link.within_host_gb_per_s), number(link.within_host_latency_us),
      number(link.between_hosts_gb_per_s), number(link.between_hosts_latency_us));
  for (const HostLink& between : cluster.host_links) {
    text += fmt::format("\n[[host_link]]\nhosts = [{}, {}]\ngb_per_s = {}\nlatency_us = {}\n",
                        quoted(between.host_a), quoted(between.host_b), number(between.gb_per_s),
                        number(between.latency_us));
  }
  return text;
}

}  // namespace longhaul
