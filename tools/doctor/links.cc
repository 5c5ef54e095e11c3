#include "tools/doctor/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace longhaul {
namespace {

constexpr double kSlowGbPerS = 0.1;  // a link of 1 Gbit/s is just above
constexpr double kClockLimit = 2;    // seconds

std::string describe(const LinkFact& link, const std::vector<std::string>& hosts) {
  return fmt::format(
      "{} - {}  {:.3g} GB/s, {:.3g} ms", hosts[static_cast<std::size_t>(link.rank_a)],
      hosts[static_cast<std::size_t>(link.rank_b)], link.gb_per_s, link.latency_us / 1e3);
}

}  // namespace

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
