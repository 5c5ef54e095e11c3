#include "cluster/comm/host_info.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <set>
#include <string_view>

namespace longhaul {
namespace {

struct Placed {
  std::int64_t process = 0;
  std::int64_t launcher_local_rank = -1;
  std::array<char, 256> host{};  // ends with 0

  std::string_view host_name() const { return host.data(); }
};

std::int64_t launcher_local_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view digits(text);
    std::int64_t value = -1;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec == std::errc() && value >= 0) return value;
  }
  return -1;
}

}  // namespace

std::string hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  const std::string whole(name.data());
  return whole.substr(0, whole.find('.'));
}

HostInfo host_info(Communicator& comm) {
  HostInfo info;
  info.hostname = hostname();
  Placed mine;
  mine.process = ::getpid();
  mine.launcher_local_rank = launcher_local_rank();
  std::memcpy(mine.host.data(), info.hostname.data(),
              std::min(info.hostname.size(), mine.host.size() - 1));
  std::vector<Placed> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));

  bool ask_launcher = true;
  std::set<std::pair<std::string_view, std::int64_t>> processes;
  std::set<std::string_view> hosts;
  info.n_local = 0;
  for (int r = 0; r < comm.size(); ++r) {
    const Placed& other = all[static_cast<std::size_t>(r)];
    info.hostnames.emplace_back(other.host_name());
    hosts.insert(other.host_name());
    if (!processes.emplace(other.host_name(), other.process).second) ask_launcher = false;
    if (other.launcher_local_rank < 0) ask_launcher = false;
    if (other.host_name() != mine.host_name()) continue;
    ++info.n_local;
    if (r < comm.rank()) ++info.local_rank;
  }
  info.n_hosts = static_cast<int>(hosts.size());
  if (ask_launcher) info.local_rank = static_cast<int>(mine.launcher_local_rank);
  return info;
}

}  // namespace longhaul
