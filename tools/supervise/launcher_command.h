// What of `mpirun -n 8 --host a:4,b:4 longhaul run ...` is whose, and the same with other hosts.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

using Words = std::vector<std::string>;

struct HostSlots {
  std::string name;
  // How many ranks Open MPI starts there; none: as many as the host has cores, which nobody here
  // knows.
  std::optional<int> n_slots;
  bool operator==(const HostSlots&) const = default;
};

struct LauncherCommand {
  Words launcher;  // its name and flags
  Words program;   // what it starts
};
// The program is the first word that is `program_name`, with or without a path. Throws
// kInvalidArgument when there is none, or nothing before it. Pure.
LauncherCommand split_command(const Words& words, std::string_view program_name);

// The hosts that an Open MPI launcher's flags name, --host and --hostfile in their spellings; empty
// where they name none, and Slurm or this host alone decides. Reads the host file; throws kIo.
std::vector<HostSlots> hosts_of(const Words& launcher);
// "node01 slots=4 max_slots=8", "node01 slots = 4", "node01:4", comments after #. Pure.
std::vector<HostSlots> parse_hostfile(std::string_view text);

// The same launcher for these hosts alone, and for no more ranks than they have slots; where that
// is not known, for as many ranks as before. Pure.
Words with_hosts(const Words& launcher, const std::vector<HostSlots>& hosts);
// Starts `true` on one of the hosts, in the way in which this launcher starts things. Pure.
Words probe_of(const Words& launcher, const std::string& host);

}  // namespace longhaul
