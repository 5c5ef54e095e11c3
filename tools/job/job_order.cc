#include "tools/job/job_order.h"

#include <limits>
#include <utility>

#include "base/json.h"
#include "partition/plan_json.h"

namespace longhaul {
namespace {

constexpr std::string_view kSource = "the order of rank 0";

Json cluster_to_json(const ClusterSpec& cluster) {
  JsonArray ranks;
  for (const RankSpec& rank : cluster.ranks) {
    ranks.emplace_back(JsonObject{{"host", rank.host},
                                  {"memory_bytes", rank.memory_bytes},
                                  {"gflops", rank.gflops},
                                  {"memory_gb_per_s", rank.memory_gb_per_s},
                                  {"attention_gflops", rank.attention_gflops},
                                  {"on_gpu", rank.device == Device::kCuda},
                                  {"gpu", rank.gpu}});
  }
  JsonArray host_links;
  for (const HostLink& between : cluster.host_links) {
    host_links.emplace_back(JsonObject{{"hosts", JsonArray{between.host_a, between.host_b}},
                                       {"gb_per_s", between.gb_per_s},
                                       {"latency_us", between.latency_us}});
  }
  const LinkSpec& link = cluster.link;
  return JsonObject{{"ranks", std::move(ranks)},
                    {"within_host_gb_per_s", link.within_host_gb_per_s},
                    {"within_host_latency_us", link.within_host_latency_us},
                    {"between_hosts_gb_per_s", link.between_hosts_gb_per_s},
                    {"between_hosts_latency_us", link.between_hosts_latency_us},
                    {"host_links", std::move(host_links)},
                    {"headroom", cluster.headroom},
                    {"speeds_known", cluster.speeds_known}};
}

ClusterSpec cluster_from_json(const JsonField& json) {
  ClusterSpec cluster;
  const JsonField ranks = json.at("ranks");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const JsonField rank = ranks.at(i);
    cluster.ranks.push_back(
        {.host = rank.at("host").as_string(),
         .memory_bytes =
             rank.at("memory_bytes").as_integer(0, std::numeric_limits<std::int64_t>::max()),
         .gflops = rank.at("gflops").as_number(),
         .memory_gb_per_s = rank.at("memory_gb_per_s").as_number(),
         .device = rank.at("on_gpu").as_bool() ? Device::kCuda : Device::kCpu,
         .gpu = static_cast<int>(rank.at("gpu").as_integer(0, std::numeric_limits<int>::max())),
         .attention_gflops = rank.at("attention_gflops").as_number()});
  }
  const JsonField links = json.at("host_links");
  for (std::size_t i = 0; i < links.size(); ++i) {
    const JsonField between = links.at(i);
    cluster.host_links.push_back({.host_a = between.at("hosts").at(std::size_t{0}).as_string(),
                                  .host_b = between.at("hosts").at(std::size_t{1}).as_string(),
                                  .gb_per_s = between.at("gb_per_s").as_number(),
                                  .latency_us = between.at("latency_us").as_number()});
  }
  cluster.link.within_host_gb_per_s = json.at("within_host_gb_per_s").as_number();
  cluster.link.within_host_latency_us = json.at("within_host_latency_us").as_number();
  cluster.link.between_hosts_gb_per_s = json.at("between_hosts_gb_per_s").as_number();
  cluster.link.between_hosts_latency_us = json.at("between_hosts_latency_us").as_number();
  cluster.headroom = json.at("headroom").as_number();
  cluster.speeds_known = json.at("speeds_known").as_bool();
  cluster.validate();
  return cluster;
}

}  // namespace

std::string encode_order(const JobPlan& job) {
  JsonArray arenas;
  for (const ArenaBytes& arena : job.arenas)
    arenas.emplace_back(JsonObject{{"gpu", arena.gpu}, {"pinned", arena.pinned}});
  return to_text(JsonObject{{"plan", plan_to_json(*job.plan)},
                            {"cluster", cluster_to_json(*job.cluster)},
                            {"arenas", std::move(arenas)},
                            {"n_threads", job.n_threads}});
}

JobPlan decode_order(std::string_view text) {
  const Json json = parse_json(text, kSource);
  const JsonField root(json, std::string(kSource));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::vector<ArenaBytes> arenas;
  const JsonField given = root.at("arenas");
  for (std::size_t i = 0; i < given.size(); ++i) {
    arenas.push_back({.gpu = given.at(i).at("gpu").as_integer(0, kMost),
                      .pinned = given.at(i).at("pinned").as_integer(0, kMost)});
  }
  return {std::make_shared<const Plan>(plan_from_json(root.at("plan").json(), kSource)),
          std::make_shared<const ClusterSpec>(cluster_from_json(root.at("cluster"))),
          std::move(arenas),
          static_cast<int>(root.at("n_threads").as_integer(0, std::numeric_limits<int>::max()))};
}

}  // namespace longhaul
