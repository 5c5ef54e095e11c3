// The TOML form of a cluster (partition/cluster_spec.h). toml++ parses; the rules are here.
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sizes.h"
#include "partition/cluster_spec.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxRanks = 1 << 20;

// One table of the file with its name, for messages that say where.
class Table {
 public:
  Table(const toml::table& table, std::string_view source, std::string name)
      : table_(&table), source_(source), name_(std::move(name)) {}

  [[noreturn]] void fail(const toml::node& where, std::string_view reason) const {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: line {}: {}", source_, where.source().begin.line, reason));
  }

  // Where the table begins.
  [[noreturn]] void fail(std::string_view reason) const {
    fail(*table_, fmt::format("{}{}", name_, reason));
  }
  std::int64_t line() const { return table_->source().begin.line; }

  [[noreturn]] void fail(std::string_view key, std::string_view reason) const {
    fail(*table_->get(key), fmt::format("{}{} {}", name_, key, reason));
  }

  void allow(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, node] : *table_) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      fail(node, fmt::format("{}unknown key \"{}\"; known are {}", name_, key.str(),
                             fmt::join(keys, ", ")));
    }
  }

  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                       std::int64_t max) const {
    const toml::node* node = table_->get(key);
    if (node == nullptr) return fallback;
    if (!node->is_integer()) fail(*node, fmt::format("{}{}: expected an integer", name_, key));
    const std::int64_t value = node->as_integer()->get();
    if (value < min || value > max) {
      fail(*node, fmt::format("{}{} is {}, must be {} to {}", name_, key, value, min, max));
    }
    return value;
  }

  bool flag(std::string_view key) const {
    const toml::node* node = table_->get(key);
    if (node == nullptr) return false;
    if (!node->is_boolean()) fail(*node, fmt::format("{}{}: expected true or false", name_, key));
    return node->as_boolean()->get();
  }

  // Numbers from 10^-6 (or 0) to 10^12: no sum or quotient of them is infinite.
  double number(std::string_view key, double fallback, bool zero_allowed = false) const {
    const toml::node* node = table_->get(key);
    if (node == nullptr) return fallback;
    if (!node->is_number()) fail(*node, fmt::format("{}{}: expected a number", name_, key));
    const double value = *node->value<double>();
    if (!(value >= 1e-6 || (zero_allowed && value == 0)) || !(value <= 1e12)) {
      fail(*node, fmt::format("{}{} is {}, must be {}10^-6 to 10^12", name_, key, value,
                              zero_allowed ? "0 or " : ""));
    }
    return value;
  }

  std::string text(std::string_view key, std::string fallback) const {
    const toml::node* node = table_->get(key);
    if (node == nullptr) return fallback;
    if (!node->is_string()) fail(*node, fmt::format("{}{}: expected a string", name_, key));
    return node->as_string()->get();
  }

  std::int64_t bytes(std::string_view key) const {
    const toml::node* node = table_->get(key);
    if (node == nullptr) {
      fail(*table_, fmt::format("{}{} is missing; write, say, {} = \"64 GiB\"", name_, key, key));
    }
    if (!node->is_integer() && !node->is_string())
      fail(*node, fmt::format("{}{}: expected a size; write, say, \"64 GiB\"", name_, key));
    const std::string value =
        node->is_integer() ? std::to_string(node->as_integer()->get()) : text(key, "");
    const auto size = byte_size_from(value);
    if (!size || *size == 0) {
      fail(*node,
           fmt::format("{}{}: \"{}\" is not a size; write, say, \"64 GiB\"", name_, key, value));
    }
    if (*size < kLeastMemory)
      fail(*node, fmt::format("{}{} {}", name_, key, too_little_memory(value, *size)));
    return *size;
  }

  bool has(std::string_view key) const { return table_->contains(key); }

 private:
  const toml::table* table_;
  std::string_view source_;
  std::string name_;
};

// The ranks of one node, without their host.
std::vector<RankSpec> ranks_of(const Table& node, ClusterSpec& cluster) {
  const std::int64_t n_gpus = node.integer("gpus", 0, 0, kMaxRanks);
  const std::int64_t n_ranks =
      node.integer("ranks", std::max<std::int64_t>(1, n_gpus), 1, kMaxRanks);
  if (n_gpus == 0 && node.has("gpu_memory")) node.fail("gpu_memory", "without gpus");
  if (n_gpus > 0 && node.has("memory")) {
    node.fail("memory", "of a node with gpus: its ranks have gpu_memory");
  }
  RankSpec rank;
  if (n_gpus > 0) {
    rank.device = Device::kCuda;
    rank.gflops = kDefaultGpuGflops;
    rank.memory_gb_per_s = kDefaultGpuGbPerS;
  }
  rank.gflops = node.number("gflops", rank.gflops);
  rank.memory_gb_per_s = node.number("gb_per_s", rank.memory_gb_per_s);
  rank.attention_gflops = node.number("attention_gflops", 0, /*zero_allowed=*/true);
  if (!node.has("gflops") || !node.has("gb_per_s")) cluster.speeds_known = false;
  const std::int64_t bytes = node.bytes(n_gpus > 0 ? "gpu_memory" : "memory");
  std::vector<RankSpec> ranks(static_cast<std::size_t>(n_ranks), rank);
  for (std::int64_t i = 0; i < n_ranks; ++i) {
    RankSpec& mine = ranks[static_cast<std::size_t>(i)];
    if (n_gpus == 0) {
      mine.memory_bytes = bytes / n_ranks;
      continue;
    }
    mine.gpu = static_cast<int>(i % n_gpus);
    const std::int64_t n_sharing = (n_ranks - mine.gpu + n_gpus - 1) / n_gpus;
    mine.memory_bytes = bytes / n_sharing;
  }
  return ranks;
}

// Hosts with the kinds of devices that their tables are about, and the first of these tables'
// lines.
using Hosts = std::map<std::pair<std::string, Device>, std::int64_t>;

// A host that is named twice is hardly meant to be one.
void note_host(const Table& node, const std::string& host, Device device, bool is_same,
               Hosts& hosts) {
  const auto [before, is_new] = hosts.emplace(std::pair(host, device), node.line());
  if (is_new && is_same)
    node.fail(fmt::format("same_host: no node before this one is called {}", host));
  if (!is_new && !is_same) {
    node.fail(
        fmt::format("the node in line {} is called {}, too: give this one another name, or, "
                    "if it has more ranks of that host, same_host = true",
                    before->second, host));
  }
}

void add_nodes(const Table& node, std::size_t index, ClusterSpec& cluster, Hosts& hosts) {
  node.allow({"name", "count", "ranks", "memory", "gflops", "gb_per_s", "attention_gflops", "gpus",
              "gpu_memory", "same_host"});
  const std::string name = node.text("name", fmt::format("node{}", index));
  const std::int64_t count = node.integer("count", 1, 1, kMaxRanks);
  std::vector<RankSpec> ranks = ranks_of(node, cluster);
  if (cluster.n_ranks() + count * static_cast<std::int64_t>(ranks.size()) > kMaxRanks)
    node.fail(fmt::format("with it there are more than {} ranks", kMaxRanks));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string host = count == 1 ? name : fmt::format("{}-{}", name, i);
    note_host(node, host, ranks.front().device, node.flag("same_host"), hosts);
    for (RankSpec& rank : ranks) rank.host = host;
    cluster.ranks.insert(cluster.ranks.end(), ranks.begin(), ranks.end());
  }
}

LinkSpec parse_link(const Table& table) {
  table.allow({"within_host_gb_per_s", "within_host_latency_us", "between_hosts_gb_per_s",
               "between_hosts_latency_us"});
  LinkSpec link;
  link.within_host_gb_per_s = table.number("within_host_gb_per_s", link.within_host_gb_per_s);
  link.between_hosts_gb_per_s = table.number("between_hosts_gb_per_s", link.between_hosts_gb_per_s);
  link.within_host_latency_us =
      table.number("within_host_latency_us", link.within_host_latency_us, /*zero_allowed=*/true);
  link.between_hosts_latency_us = table.number(
      "between_hosts_latency_us", link.between_hosts_latency_us, /*zero_allowed=*/true);
  return link;
}

// A link between two hosts of the file.
HostLink parse_host_link(const Table& table, const toml::table& raw, const ClusterSpec& cluster) {
  table.allow({"hosts", "gb_per_s", "latency_us"});
  const toml::array* hosts = raw["hosts"].as_array();
  if (hosts == nullptr || hosts->size() != 2 || !hosts->is_homogeneous(toml::node_type::string))
    table.fail(raw, "host_link: hosts must be two names, as in hosts = [\"a\", \"b\"]");
  HostLink link{.host_a = *(*hosts)[0].value<std::string>(),
                .host_b = *(*hosts)[1].value<std::string>(),
                .gb_per_s = table.number("gb_per_s", cluster.link.between_hosts_gb_per_s),
                .latency_us = table.number("latency_us", cluster.link.between_hosts_latency_us,
                                           /*zero_allowed=*/true)};
  for (const std::string& host : {link.host_a, link.host_b}) {
    const bool known = std::any_of(cluster.ranks.begin(), cluster.ranks.end(),
                                   [&](const RankSpec& rank) { return rank.host == host; });
    if (!known) table.fail("hosts", fmt::format("names {}, which no [[node]] does", host));
  }
  if (link.host_a == link.host_b) table.fail("hosts", "names one host twice");
  return link;
}

// Which of the links is between the same hosts, in either order; their number where none is.
std::size_t find_link(const std::vector<HostLink>& links, const HostLink& link) {
  const auto same = std::find_if(links.begin(), links.end(), [&](const HostLink& other) {
    return (other.host_a == link.host_a && other.host_b == link.host_b) ||
           (other.host_a == link.host_b && other.host_b == link.host_a);
  });
  return static_cast<std::size_t>(same - links.begin());
}

void add_host_links(const Table& top, const toml::table& root, std::string_view source,
                    ClusterSpec& cluster) {
  const toml::node* links = root.get("host_link");
  if (links == nullptr) return;
  if (!links->is_array_of_tables()) top.fail(*links, "host_link must be tables: [[host_link]]");
  for (const toml::node& node : *links->as_array()) {
    const toml::table& raw = *node.as_table();
    const Table table(raw, source, "host_link: ");
    HostLink link = parse_host_link(table, raw, cluster);
    const std::size_t before = find_link(cluster.host_links, link);
    if (before < cluster.host_links.size()) {
      table.fail(raw, fmt::format("host_link: {} and {} have one already, in line {}; remove one "
                                  "of the two",
                                  link.host_a, link.host_b,
                                  (*links->as_array())[before].source().begin.line));
    }
    cluster.host_links.push_back(std::move(link));
  }
}

toml::table parse_toml(std::string_view text, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: line {}: {}", source, error.source().begin.line, error.description()));
  }
}

}  // namespace

ClusterSpec parse_cluster_toml(std::string_view text, std::string_view source) {
  const toml::table root = parse_toml(text, source);
  const Table top(root, source, "");
  top.allow({"headroom", "node", "link", "host_link"});
  ClusterSpec cluster;
  cluster.speeds_known = true;
  cluster.headroom = top.number("headroom", cluster.headroom, /*zero_allowed=*/true);
  if (cluster.headroom >= 1) top.fail(*root.get("headroom"), "headroom must be less than 1");
  if (const toml::node* link = root.get("link")) {
    if (!link->is_table()) top.fail(*link, "link must be a table: [link]");
    cluster.link = parse_link(Table(*link->as_table(), source, "link: "));
  }
  const toml::node* nodes = root.get("node");
  if (nodes == nullptr || !nodes->is_array_of_tables()) {
    top.fail(nodes == nullptr ? root : *nodes, "no nodes: each needs a table [[node]]");
  }
  std::size_t index = 0;
  Hosts hosts;
  for (const toml::node& node : *nodes->as_array()) {
    add_nodes(Table(*node.as_table(), source, fmt::format("node {}: ", index)), index, cluster,
              hosts);
    ++index;
  }
  add_host_links(top, root, source, cluster);
  cluster.validate();
  return cluster;
}

}  // namespace longhaul
