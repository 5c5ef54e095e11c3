#include "tools/job/rank_place.h"

#include "base/error.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/interfaces.h"

namespace longhaul {

RankPlace place_of_this_rank(std::string_view wanted) {
  const std::vector<NetworkInterface> all = network_interfaces();
  return {hostname(), wanted.empty() ? between_hosts(all) : named_interfaces(all, wanted)};
}

std::chrono::seconds greeting_limit(const JobConfig& config) {
  constexpr int kParts = 4;  // greeting, pairs, and what comes after
  return std::chrono::ceil<std::chrono::seconds>(config.start_timeout / kParts);
}

std::string control_address(const std::vector<RankPlace>& places) {
  std::vector<std::vector<NetworkInterface>> of_hosts;
  for (const int rank : first_ranks_of(places))
    of_hosts.push_back(places[static_cast<std::size_t>(rank)].interfaces);
  std::string address = common_address(of_hosts);
  if (address.empty()) {
    throw Error(ErrorCode::kIo,
                "rank 0's node has no network interface for the control connections of the other "
                "nodes; --interfaces or --control-address names one");
  }
  return address;
}

}  // namespace longhaul
