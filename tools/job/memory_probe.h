// How much of the host's memory this process may still take.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace longhaul {

// What the kernel calls available, or what control groups (versions 1 and 2) leave where that is
// less: for all processes of the host or group. Reads /proc and /sys.
std::int64_t shared_memory_left();
// What ulimit -v leaves to this process; nullopt without a limit.
std::optional<std::int64_t> address_space_left();
// The less of both: for a process that is alone.
std::int64_t free_memory_bytes();

// What the control groups leave that a text of /proc/PID/cgroup names, with all that are above
// them; nullopt where none has a limit. `mount` is where they are seen, /sys/fs/cgroup.
std::optional<std::int64_t> cgroup_bytes_left(const std::filesystem::path& mount,
                                              std::string_view own_groups);

// What a rank's process takes beside what plans count: buffers of MPI and of libraries that grow
// while it runs, stacks, tables, results under way. What the program and its libraries hold when
// memory is measured is taken already.
inline constexpr std::int64_t kProcessBytes = std::int64_t{32} << 20;
inline constexpr std::int64_t kMpiProcessBytes = std::int64_t{96} << 20;

// MemAvailable of /proc/meminfo in bytes; nullopt when the text does not say. Pure.
std::optional<std::int64_t> available_bytes_of(std::string_view meminfo);

}  // namespace longhaul
