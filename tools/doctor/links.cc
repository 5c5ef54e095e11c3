#include "tools/doctor/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "base/clock.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostForAllPairs = 8;
constexpr int kPings = 10;
constexpr std::size_t kBytes = 4 << 20;
constexpr double kSlowGbPerS = 0.1;  // a link of 1 Gbit/s is just above
constexpr double kClockLimit = 2;    // seconds

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void send(Communicator& comm, int to, std::span<const std::byte> data) {
  comm.start_send(to, {Traffic::kOther}, data).wait();
}
void receive(Communicator& comm, int from, std::span<std::byte> data) {
  comm.start_receive(from, {Traffic::kOther}, data).wait();
}
template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Rank a's part: it asks, rank b answers with its clock.
LinkFact ask(Communicator& comm, int b) {
  LinkFact link{comm.rank(), b, 1e12, 0, 0};
  for (int i = 0; i < kPings; ++i) {
    const double before = now_s();
    const Stopwatch watch;
    double there = 0;
    send(comm, b, bytes_of(there));
    receive(comm, b, bytes_of(there));
    const double half_us = watch.seconds() / 2 * 1e6;
    if (half_us >= link.latency_us) continue;
    link.latency_us = half_us;
    link.b_ahead_s = there - (before + half_us / 1e6);
  }
  std::vector<std::byte> data(kBytes);
  std::array<double, 2> seconds{};
  std::byte mark{};
  {  // there
    const Stopwatch watch;
    send(comm, b, data);
    receive(comm, b, bytes_of(mark));
    seconds[0] = watch.seconds();
  }
  {  // and back
    const Stopwatch watch;
    send(comm, b, bytes_of(mark));
    receive(comm, b, data);
    seconds[1] = watch.seconds();
  }
  link.gb_per_s = static_cast<double>(kBytes) / 1e9 / std::max(seconds[0], seconds[1]);
  return link;
}

void answer(Communicator& comm, int a) {
  for (int i = 0; i < kPings; ++i) {
    double here = 0;
    receive(comm, a, bytes_of(here));
    here = now_s();
    send(comm, a, bytes_of(here));
  }
  std::vector<std::byte> data(kBytes);
  std::byte mark{};
  receive(comm, a, data);
  send(comm, a, bytes_of(mark));
  receive(comm, a, bytes_of(mark));
  send(comm, a, data);
}

std::vector<std::pair<int, int>> pairs_of(const std::vector<int>& ranks) {
  std::vector<std::pair<int, int>> pairs;
  const bool all = ranks.size() <= kMostForAllPairs;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t end = all ? ranks.size() : std::min(ranks.size(), i + 2);
    for (std::size_t j = i + 1; j < end; ++j) pairs.emplace_back(ranks[i], ranks[j]);
  }
  return pairs;
}

std::string describe(const LinkFact& link, const std::vector<std::string>& hosts) {
  return fmt::format(
      "{} - {}  {:.3g} GB/s, {:.3g} ms", hosts[static_cast<std::size_t>(link.rank_a)],
      hosts[static_cast<std::size_t>(link.rank_b)], link.gb_per_s, link.latency_us / 1e3);
}

}  // namespace

std::vector<LinkFact> measure_links(Communicator& comm, const std::vector<int>& ranks) {
  std::vector<LinkFact> links;
  for (const auto& [a, b] : pairs_of(ranks)) {
    LinkFact link;
    if (comm.rank() == a) link = ask(comm, b);
    if (comm.rank() == b) answer(comm, a);
    comm.broadcast(bytes_of(link), a);
    links.push_back(link);
  }
  return links;
}

std::vector<Finding> judge_links(const std::vector<LinkFact>& links,
                                 const std::vector<std::string>& hosts) {
  if (links.empty()) return {};
  const auto by_speed = [](const LinkFact& x, const LinkFact& y) {
    return x.gb_per_s < y.gb_per_s;
  };
  const auto [slowest, fastest] = std::minmax_element(links.begin(), links.end(), by_speed);
  constexpr std::size_t kMostShown = 6;
  std::string text;
  if (links.size() <= kMostShown) {
    std::vector<std::string> lines;
    for (const LinkFact& link : links) lines.push_back(describe(link, hosts));
    text = fmt::format("{}", fmt::join(lines, "\n"));
  } else {
    text = fmt::format("slowest  {}\nfastest  {}", describe(*slowest, hosts),
                       describe(*fastest, hosts));
  }
  std::vector<Finding> findings;
  if (slowest->gb_per_s < fastest->gb_per_s / 4) {
    findings.push_back(
        {Health::kWarn, "links", text, "every chunk waits for the slowest link of the ring",
         "look at that link (a port that fell back to a lower rate?), or leave its host out"});
  } else if (slowest->gb_per_s < kSlowGbPerS) {
    findings.push_back({Health::kWarn, "links", text,
                        "keys and queries of every chunk travel between the hosts",
                        "a faster network, if there is one: --interfaces; else stages: --stages"});
  } else {
    findings.push_back({Health::kPass, "links", text, "", ""});
  }
  const auto ahead = [](const LinkFact& link) { return std::abs(link.b_ahead_s); };
  const auto worst =
      std::max_element(links.begin(), links.end(),
                       [&](const auto& x, const auto& y) { return ahead(x) < ahead(y); });
  const std::string clocks =
      fmt::format("{} and {} are {:.3g} s apart", hosts[static_cast<std::size_t>(worst->rank_a)],
                  hosts[static_cast<std::size_t>(worst->rank_b)], ahead(*worst));
  if (ahead(*worst) > kClockLimit) {
    findings.push_back({Health::kWarn, "clocks", clocks,
                        "times in logs and results cannot be compared; jobs are not disturbed",
                        "let the hosts ask one time server (chrony)"});
  } else {
    findings.push_back({Health::kPass, "clocks", "less than 2 s apart", "", ""});
  }
  return findings;
}

}  // namespace longhaul
