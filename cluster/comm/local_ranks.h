// The processes of this job on this host, as the kernel sees them: for the time before MPI connects
// them, when nobody else can say who is missing. Linux only; needs no rights beyond the user's own.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

struct LocalRank {
  int rank = -1;
  pid_t process = -1;
  char state = '?';  // of /proc/PID/stat: R, S, D, T, Z, ...
  bool is_stopped() const { return state == 'T' || state == 't'; }
};

// By rank; those that run this program under the same launcher. Empty where the launcher's
// variables do not tell. Reads /proc.
std::vector<LocalRank> ranks_on_this_host();

// "On vm 3 of 4 ranks are there: rank 0 (process 71) waits, rank 2 (process 73) is stopped, ...".
// `n_expected`: on this host; nullopt: not known. Pure.
std::string describe_start(std::string_view host, const std::vector<LocalRank>& ranks,
                           std::optional<int> n_expected);
// The rank that the launcher gave this process; nullopt without a launcher.
std::optional<int> rank_by_launcher();
// How many ranks the launcher started on this host; nullopt where it does not say.
std::optional<int> ranks_expected_here();

// The value of `name` in an environment as the kernel has it, "A=1\0B=2\0"; "" without one. Pure.
std::string_view variable_in(std::string_view environment, std::string_view name);
// The state in a text of /proc/PID/stat, whose second field, the program's name, may hold anything.
// '?' when there is none. Pure.
char state_in(std::string_view stat);

}  // namespace longhaul
