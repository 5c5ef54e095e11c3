#include "tools/job/memory_probe.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/kernel_text.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// The files of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  std::string_view cached;  // a line of memory.stat: used, but given back when it is needed
};

std::optional<std::int64_t> number_in(const fs::path& file) {
  const std::string text = kernel_text(file);  // "max": no limit
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// A number such as "total_inactive_file 123" in a text of lines.
std::int64_t number_after(std::string_view text, std::string_view key) {
  std::int64_t value = 0;
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const bool begins_line = at == 0 || text[at - 1] == '\n';
    const std::size_t number = at + key.size() + 1;
    if (!begins_line || number >= text.size() || text[number - 1] != ' ') continue;
    std::from_chars(text.data() + number, text.data() + text.size(), value);
    return value;
  }
  return 0;
}

// Of one group: its limit less what it holds and cannot give back; nullopt without a limit.
std::optional<std::int64_t> left_in_group(const fs::path& folder, const GroupFiles& files) {
  const auto limit = number_in(folder / files.limit);
  // Version 1 says "no limit" as a number near 2^63.
  if (!limit || *limit >= std::int64_t{1} << 60) return std::nullopt;
  // Files that were read stay in memory until somebody needs it.
  const std::int64_t cached = number_after(kernel_text(folder / "memory.stat"), files.cached);
  const std::int64_t used = number_in(folder / files.used).value_or(0) - cached;
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used));
}

// The least that any group on the way from `root` down to `group` leaves.
std::optional<std::int64_t> left_on_the_way(const fs::path& root, const fs::path& group,
                                            const GroupFiles& files) {
  std::optional<std::int64_t> least = left_in_group(root, files);
  fs::path folder = root;
  for (const fs::path& part : group.relative_path()) {
    folder /= part;
    const auto left = left_in_group(folder, files);
    if (left && (!least || *left < *least)) least = left;
  }
  return least;
}

}  // namespace

std::optional<std::int64_t> cgroup_bytes_left(const fs::path& mount, std::string_view own_groups) {
  constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                    "total_inactive_file"};
  constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};
  std::optional<std::int64_t> least;
  const auto look_at = [&](std::optional<std::int64_t> left) {
    if (left && (!least || *left < *least)) least = left;
  };
  // Lines such as "0::/system.slice/job" (version 2) and "9:cpuset,memory:/slurm/job_7" (1).
  while (!own_groups.empty()) {
    const std::size_t end = std::min(own_groups.find('\n'), own_groups.size());
    const std::string_view line = own_groups.substr(0, end);
    own_groups.remove_prefix(std::min(end + 1, own_groups.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const fs::path group(std::string(line.substr(second + 1)));
    if (controllers == ",,") {
      look_at(left_on_the_way(mount, group, kVersion2));
      look_at(left_on_the_way(mount / "unified", group, kVersion2));  // beside version 1
    } else if (controllers.find(",memory,") != std::string::npos) {
      look_at(left_on_the_way(mount / "memory", group, kVersion1));
    }
  }
  // In a container the group's own path may not be there; its root is the container's group.
  look_at(left_in_group(mount, kVersion2));
  look_at(left_in_group(mount / "memory", kVersion1));
  return least;
}

// Less what threads take of it without using it (stacks of 8 MiB, arenas of malloc's).
std::optional<std::int64_t> address_space_left() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  constexpr std::int64_t kOfThreads = std::int64_t{160} << 20;
  const std::int64_t pages = number_in("/proc/self/statm").value_or(0);
  const auto bytes = static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 60));
  return std::max<std::int64_t>(0, bytes - pages * ::sysconf(_SC_PAGESIZE) - kOfThreads);
}

std::int64_t shared_memory_left() {
  std::optional<std::int64_t> bytes = available_bytes_of(kernel_text("/proc/meminfo"));
  if (!bytes) bytes = std::int64_t{::sysconf(_SC_AVPHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto in_group = cgroup_bytes_left("/sys/fs/cgroup", kernel_text("/proc/self/cgroup"));
  return std::min(*bytes, in_group.value_or(*bytes));
}

std::int64_t free_memory_bytes() {
  const std::int64_t shared = shared_memory_left();
  return std::min(shared, address_space_left().value_or(shared));
}

std::optional<std::int64_t> available_bytes_of(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const std::size_t key = meminfo.find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  std::string_view rest = meminfo.substr(key + kKey.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  std::int64_t kib = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), kib);
  if (error != std::errc() || kib < 0 || kib > (std::int64_t{1} << 42)) return std::nullopt;
  return kib * 1024;
}

}  // namespace longhaul
