#include "cluster/comm/reach.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace longhaul {
namespace {

constexpr std::size_t kMostHostsInTable = 12;
constexpr std::size_t kMostPairs = 20;

constexpr std::string_view kRemedy =
    "MPI sends by TCP: if hosts have several networks, name one that all of them share with "
    "--interfaces (names or subnets, as in --interfaces ib0 or --interfaces 10.1.0.0/16); if there "
    "is a firewall, let them talk to each other on TCP ports from 1024 up";

std::string table(const std::vector<std::string>& hosts,
                  const std::vector<std::vector<char>>& heard) {
  std::size_t width = 5;
  for (const std::string& host : hosts) width = std::max(width, host.size());
  std::string text = fmt::format("  {:>{}}  hears", "", width);
  for (const std::string& host : hosts) text += fmt::format("  {:>{}}", host, width);
  for (std::size_t to = 0; to < hosts.size(); ++to) {
    text += fmt::format("\n  {:>{}}       ", hosts[to], width);
    for (std::size_t from = 0; from < hosts.size(); ++from) {
      text += fmt::format("  {:>{}}",
                          from == to             ? "-"
                          : heard[to][from] != 0 ? "yes"
                                                 : "NO",
                          width);
    }
  }
  return text;
}

std::string pairs(const std::vector<std::string>& hosts,
                  const std::vector<std::vector<char>>& heard) {
  std::vector<std::string> texts;
  std::size_t n_more = 0;
  for (std::size_t to = 0; to < hosts.size(); ++to) {
    for (std::size_t from = 0; from < hosts.size(); ++from) {
      if (heard[to][from] != 0) continue;
      if (texts.size() == kMostPairs) {
        ++n_more;
      } else {
        texts.push_back(fmt::format("  {} does not hear {}", hosts[to], hosts[from]));
      }
    }
  }
  if (n_more > 0) texts.push_back(fmt::format("  and {} more", n_more));
  return fmt::format("{}", fmt::join(texts, "\n"));
}

}  // namespace

std::string encode(const RankPlace& place, std::size_t n_bytes) {
  std::string text = place.host.substr(0, n_bytes / 2) + "\n";
  for (const NetworkInterface& interface : place.interfaces) {
    const std::string line =
        fmt::format("{} {} {}\n", interface.name, interface.address, interface.n_prefix_bits);
    if (text.size() + line.size() > n_bytes) break;
    text += line;
  }
  return text;
}

RankPlace decode_place(std::string_view text) {
  std::istringstream in{std::string(text)};
  RankPlace place;
  std::getline(in, place.host);
  for (NetworkInterface at; in >> at.name >> at.address >> at.n_prefix_bits;)
    place.interfaces.push_back(at);
  return place;
}

bool Reach::complete() const {
  return silent.empty() && std::all_of(heard.begin(), heard.end(), [](const auto& row) {
           return std::find(row.begin(), row.end(), 0) == row.end();
         });
}

std::vector<int> first_ranks_of(const std::vector<RankPlace>& places) {
  std::vector<int> ranks;
  std::set<std::string_view> seen;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (seen.insert(places[rank].host).second) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string explain_reach(const Reach& reach) {
  const RankPlace& first = reach.places.front();
  if (!reach.silent.empty()) {
    return fmt::format("rank{} {} of {} cannot send to rank 0 on {}, which uses {}; {}",
                       reach.silent.size() == 1 ? "" : "s", fmt::join(reach.silent, ", "),
                       reach.places.size(), first.host, to_text(first.interfaces), kRemedy);
  }
  std::vector<std::string> hosts;
  for (const int rank : reach.first_ranks)
    hosts.push_back(reach.places[static_cast<std::size_t>(rank)].host);
  return fmt::format(
      "some hosts do not reach each other:\n{}\n{}",
      hosts.size() <= kMostHostsInTable ? table(hosts, reach.heard) : pairs(hosts, reach.heard),
      kRemedy);
}

std::string explain_silence(int rank, const RankPlace& place, std::chrono::seconds limit) {
  return fmt::format("rank {} on {} gets no answer from rank 0 within {} s; {} uses {}; {}", rank,
                     place.host, limit.count(), place.host, to_text(place.interfaces), kRemedy);
}

}  // namespace longhaul
