#include "tools/job/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <tuple>

#include "base/clock.h"
#include "tools/job/rank_probe.h"

namespace longhaul {
namespace {

constexpr int kMostForAllPairs = 16;
constexpr int kPings = 10;
// The first bytes show about how fast the link is, and use up what it lets through at once; then
// about this time's worth is sent a few times, and the best counts: a busy host delays some.
constexpr std::size_t kFirstBytes = std::size_t{1} << 20;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;
constexpr double kSeconds = 0.05;
constexpr int kTimes = 3;

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

// Seconds until `peer` has the data and has said so.
double timed_send(Communicator& comm, int peer, std::span<const std::byte> data) {
  std::byte mark{};
  const Stopwatch watch;
  send(comm, peer, data);
  receive(comm, peer, bytes_of(mark));
  return std::max(1e-9, watch.seconds());
}

// One way: this rank sends.
double send_gb_per_s(Communicator& comm, int peer) {
  std::vector<std::byte> data(kMostBytes);
  const double first = timed_send(comm, peer, std::span(data).first(kFirstBytes));
  const double wanted = static_cast<double>(kFirstBytes) / first * kSeconds;
  std::uint64_t n_bytes =
      std::clamp(static_cast<std::size_t>(std::min(1e12, wanted)), kFirstBytes, kMostBytes);
  send(comm, peer, bytes_of(n_bytes));
  double seconds = 1e12;
  for (int i = 0; i < kTimes; ++i) {
    seconds = std::min(seconds, timed_send(comm, peer, std::span(data).first(n_bytes)));
  }
  return static_cast<double>(n_bytes) / 1e9 / seconds;
}

void take_sent(Communicator& comm, int peer) {
  std::vector<std::byte> data(kMostBytes);
  std::byte mark{};
  receive(comm, peer, std::span(data).first(kFirstBytes));
  send(comm, peer, bytes_of(mark));
  std::uint64_t n_bytes = 0;
  receive(comm, peer, bytes_of(n_bytes));
  for (int i = 0; i < kTimes; ++i) {
    receive(comm, peer, std::span(data).first(std::min<std::size_t>(n_bytes, kMostBytes)));
    send(comm, peer, bytes_of(mark));
  }
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
  const double there = send_gb_per_s(comm, b);
  take_sent(comm, b);
  double back = 0;
  receive(comm, b, bytes_of(back));
  link.gb_per_s = std::min(there, back);
  return link;
}

void answer(Communicator& comm, int a) {
  for (int i = 0; i < kPings; ++i) {
    double here = 0;
    receive(comm, a, bytes_of(here));
    here = now_s();
    send(comm, a, bytes_of(here));
  }
  take_sent(comm, a);
  double back = send_gb_per_s(comm, a);
  send(comm, a, bytes_of(back));
}

std::vector<LinkFact> gather(Communicator& comm, const std::vector<LinkFact>& mine) {
  std::vector<LinkFact> all;
  for (const std::vector<std::byte>& part :
       comm.all_gather_varying(std::as_bytes(std::span(mine)))) {
    const std::size_t n = part.size() / sizeof(LinkFact);
    const std::size_t begin = all.size();
    all.resize(begin + n);
    if (n > 0) std::memcpy(all.data() + begin, part.data(), n * sizeof(LinkFact));
  }
  std::sort(all.begin(), all.end(), [](const LinkFact& x, const LinkFact& y) {
    return std::tie(x.rank_a, x.rank_b) < std::tie(y.rank_a, y.rank_b);
  });
  return all;
}

// Everybody with everybody, by the circle method: the last one stays, the others move on by one.
std::vector<LinkRound> all_pairs(int n) {
  const int even = n + n % 2;  // with an odd number one pauses
  std::vector<LinkRound> rounds;
  for (int r = 0; r + 1 < even; ++r) {
    LinkRound& round = rounds.emplace_back();
    for (int i = 0; i < even / 2; ++i) {
      const int a = i == 0 ? even - 1 : (r + i) % (even - 1);
      const int b = (r + even - 1 - i) % (even - 1);
      if (a < n && b < n) round.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

}  // namespace

std::vector<LinkRound> link_rounds(int n) {
  if (n <= kMostForAllPairs) return all_pairs(n);
  std::vector<LinkRound> rounds(4);
  for (int i = 0; i + 1 < n; ++i) rounds[static_cast<std::size_t>(i % 2)].emplace_back(i, i + 1);
  rounds[2].emplace_back(0, n - 1);
  for (int i = 0; i < n / 2; ++i) rounds[3].emplace_back(i, i + n / 2);
  return rounds;
}

std::vector<LinkFact> measure_links(Communicator& comm, const std::vector<int>& ranks) {
  std::vector<LinkFact> mine;
  for (const LinkRound& round : link_rounds(static_cast<int>(ranks.size()))) {
    for (const auto& [i, j] : round) {
      const int a = ranks[static_cast<std::size_t>(i)];
      const int b = ranks[static_cast<std::size_t>(j)];
      if (comm.rank() == a) mine.push_back(ask(comm, b));
      if (comm.rank() == b) answer(comm, a);
    }
  }
  return gather(comm, mine);
}

void set_links(const std::vector<LinkFact>& links, ClusterSpec& cluster) {
  if (links.empty()) return;
  const auto steady = [&](double LinkFact::*figure) {
    std::vector<double> values;
    for (const LinkFact& link : links) values.push_back(link.*figure);
    return steadied(values);
  };
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  const std::vector<double> gb_per_s = steady(&LinkFact::gb_per_s);
  const std::vector<double> latency_us = steady(&LinkFact::latency_us);
  LinkSpec& usual = cluster.link;
  usual.between_hosts_gb_per_s = median(gb_per_s);
  usual.between_hosts_latency_us = median(latency_us);
  cluster.host_links.clear();
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (gb_per_s[i] == usual.between_hosts_gb_per_s &&
        latency_us[i] == usual.between_hosts_latency_us) {
      continue;
    }
    cluster.host_links.push_back({.host_a = cluster.rank({links[i].rank_a}).host,
                                  .host_b = cluster.rank({links[i].rank_b}).host,
                                  .gb_per_s = gb_per_s[i],
                                  .latency_us = latency_us[i]});
  }
}

}  // namespace longhaul
