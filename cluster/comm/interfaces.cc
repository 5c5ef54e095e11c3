#include "cluster/comm/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"

namespace longhaul {
namespace {

// An address as bytes: 4 or 16.
std::vector<unsigned char> bytes_of(const std::string& address) {
  std::array<unsigned char, 16> bytes{};
  if (::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1)
    return {bytes.begin(), bytes.begin() + 4};
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1)
    return {bytes.begin(), bytes.end()};
  return {};
}

struct Subnet {
  std::vector<unsigned char> bytes;
  int n_prefix_bits = 0;

  bool holds(const std::string& address) const {
    const std::vector<unsigned char> other = bytes_of(address);
    if (other.size() != bytes.size()) return false;
    for (int bit = 0; bit < n_prefix_bits; bit += 8) {
      const int n_rest =
          std::max(0, 8 - (n_prefix_bits - bit));  // bits of this byte that may differ
      const auto at = static_cast<std::size_t>(bit / 8);
      if ((bytes[at] >> n_rest) != (other[at] >> n_rest)) return false;
    }
    return true;
  }
};

std::optional<Subnet> parse_subnet(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  Subnet subnet{bytes_of(std::string(text.substr(0, slash))), -1};
  const std::string_view bits = text.substr(slash + 1);
  const auto [end, error] =
      std::from_chars(bits.data(), bits.data() + bits.size(), subnet.n_prefix_bits);
  const bool is_number = error == std::errc() && end == bits.data() + bits.size();
  const int most = static_cast<int>(subnet.bytes.size()) * 8;
  if (!is_number || subnet.bytes.empty() || subnet.n_prefix_bits < 0 || subnet.n_prefix_bits > most)
    return std::nullopt;
  return subnet;
}

// The address of a socket and the bits of its mask, of IPv4 and IPv6 alike.
struct SocketBytes {
  const void* data = nullptr;
  std::size_t size = 0;
};
SocketBytes socket_bytes(const sockaddr* socket) {
  if (socket->sa_family == AF_INET)
    return {&reinterpret_cast<const sockaddr_in*>(socket)->sin_addr, 4};
  return {&reinterpret_cast<const sockaddr_in6*>(socket)->sin6_addr, 16};
}

int count_bits(const SocketBytes& mask) {
  int n = 0;
  for (std::size_t i = 0; i < mask.size; ++i)
    n += std::popcount(static_cast<const unsigned char*>(mask.data)[i]);
  return n;
}

bool is_link_local(const ifaddrs& at) {
  return at.ifa_addr->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at.ifa_addr)->sin6_addr);
}

void set_unless_set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 0);
}

std::set<std::string> names_of(const std::vector<NetworkInterface>& interfaces) {
  std::set<std::string> names;
  for (const NetworkInterface& interface : interfaces) names.insert(interface.name);
  return names;
}

}  // namespace

std::string to_text(const NetworkInterface& interface) {
  return fmt::format("{} {}/{}", interface.name, interface.address, interface.n_prefix_bits);
}

std::string to_text(const std::vector<NetworkInterface>& interfaces) {
  std::vector<std::string> texts;
  for (const NetworkInterface& interface : interfaces) texts.push_back(to_text(interface));
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw_errno("cannot list", "network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::vector<NetworkInterface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
      if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
      if (is_link_local(*at)) continue;
      std::array<char, INET6_ADDRSTRLEN> text{};
      if (::inet_ntop(family, socket_bytes(at->ifa_addr).data, text.data(), text.size()) == nullptr)
        continue;
      const int n_bits = at->ifa_netmask == nullptr ? 0 : count_bits(socket_bytes(at->ifa_netmask));
      found.push_back({at->ifa_name, text.data(), n_bits});
    }
  }
  return found;
}

bool serves_containers(std::string_view interface) {
  for (const std::string_view start : {"docker", "virbr", "veth", "vnet", "cni", "flannel", "cali",
                                       "lxcbr", "lxdbr", "podman", "cilium"}) {
    if (interface.starts_with(start)) return true;
  }
  // Docker's networks of its users: "br-" and 12 hexadecimal digits.
  constexpr std::size_t kDockerBridge = 15;
  return interface.starts_with("br-") && interface.size() == kDockerBridge &&
         interface.find_first_not_of("0123456789abcdef", 3) == std::string_view::npos;
}

std::vector<NetworkInterface> between_hosts(const std::vector<NetworkInterface>& all) {
  std::vector<NetworkInterface> found;
  std::copy_if(
      all.begin(), all.end(), std::back_inserter(found),
      [](const NetworkInterface& interface) { return !serves_containers(interface.name); });
  return found;
}

std::vector<NetworkInterface> named_interfaces(const std::vector<NetworkInterface>& all,
                                               std::string_view wanted) {
  std::vector<NetworkInterface> found;
  while (!wanted.empty()) {
    const std::string_view part = wanted.substr(0, wanted.find(','));
    wanted.remove_prefix(std::min(wanted.size(), part.size() + 1));
    const std::optional<Subnet> subnet = parse_subnet(part);
    const std::size_t before = found.size();
    std::copy_if(all.begin(), all.end(), std::back_inserter(found), [&](const auto& interface) {
      return subnet ? subnet->holds(interface.address) : interface.name == part;
    });
    if (found.size() == before && !subnet) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--interfaces: this host has no network interface {}; it has {} (a "
                              "name, or a subnet such as 10.1.0.0/16)",
                              part, to_text(all)));
    }
  }
  if (found.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--interfaces: no network interface of this host is in these subnets; "
                            "it has {}",
                            to_text(all)));
  }
  return found;
}

std::string common_address(const std::vector<std::vector<NetworkInterface>>& of_hosts) {
  std::string best;
  std::ptrdiff_t most = -1;
  for (const NetworkInterface& mine : of_hosts.front()) {
    const Subnet subnet{bytes_of(mine.address), mine.n_prefix_bits};
    std::ptrdiff_t n_shared = 0;
    bool is_mine_alone = true;
    for (std::size_t host = 1; host < of_hosts.size(); ++host) {
      const auto& theirs = of_hosts[host];
      is_mine_alone =
          is_mine_alone && std::none_of(theirs.begin(), theirs.end(), [&](const auto& other) {
            return other.address == mine.address;
          });
      n_shared += std::any_of(theirs.begin(), theirs.end(),
                              [&](const auto& other) { return subnet.holds(other.address); });
    }
    if (!is_mine_alone || n_shared <= most) continue;
    most = n_shared;
    best = mine.address;
  }
  return best;
}

void tell_interfaces(std::string_view wanted) {
  const std::vector<NetworkInterface> all = network_interfaces();
  if (!wanted.empty()) {
    const std::set<std::string> names = names_of(named_interfaces(all, wanted));
    set_unless_set("OMPI_MCA_btl_tcp_if_include", fmt::format("{}", fmt::join(names, ",")));
    set_unless_set("NCCL_SOCKET_IFNAME", fmt::format("={}", fmt::join(names, ",")));
    return;
  }
  std::set<std::string> useless;
  for (const std::string& name : names_of(all)) {
    if (serves_containers(name)) useless.insert(name);
  }
  if (useless.empty()) return;
  const std::string list = fmt::format("{}", fmt::join(useless, ","));
  // Open MPI takes one of the two lists; its own default, the loopback, has to be said again.
  if (std::getenv("OMPI_MCA_btl_tcp_if_include") == nullptr)
    set_unless_set("OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp," + list);
  set_unless_set("NCCL_SOCKET_IFNAME", "^lo," + list);
}

}  // namespace longhaul
