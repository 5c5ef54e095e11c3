// Which of a host's networks its ranks use. Machines have some that lead nowhere: bridges of
// containers, whose addresses are the same on every host; MPI and NCCL try them, and wait for ever.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

struct NetworkInterface {
  std::string name;     // "eth0"
  std::string address;  // "10.1.0.7", "fd00::7"
  int n_prefix_bits = 0;
  bool operator==(const NetworkInterface&) const = default;
};
// "eth0 10.1.0.7/16".
std::string to_text(const NetworkInterface& interface);
std::string to_text(const std::vector<NetworkInterface>& interfaces);  // "eth0 ..., ib0 ..."

// This host's interfaces that are up and have an address that others could know: no loopback, no
// link-local address. IPv4 first; in the kernel's order. An interface with two addresses is there
// twice. Throws kIo.
std::vector<NetworkInterface> network_interfaces();

// Whether it is one that container and virtual machine managers make ("docker0", "virbr0",
// "veth12ab"), which does not lead to other hosts. Pure.
bool serves_containers(std::string_view interface);
// Those that do not. Pure.
std::vector<NetworkInterface> between_hosts(const std::vector<NetworkInterface>& all);

// Those that `wanted` names: names and subnets, as in "ib0,10.1.0.0/16". Throws kInvalidArgument
// for a part that is no subnet and names no interface, or when nothing is found, with what is
// there. Pure.
std::vector<NetworkInterface> named_interfaces(const std::vector<NetworkInterface>& all,
                                               std::string_view wanted);

// The address of host 0 at which the others most likely find it: one that no other host has too,
// in the subnet that most of them share; the first of equals, "" where there is none. Pure.
std::string common_address(const std::vector<std::vector<NetworkInterface>>& of_hosts);

// The variables that hold Open MPI (its transfers by TCP) and NCCL to `wanted`, or, where that is
// empty, keep them from the interfaces of containers. A variable that the user has set stays as it
// is. Before MPI starts, and before other threads do. Throws as named_interfaces.
void tell_interfaces(std::string_view wanted);

}  // namespace longhaul
