#include "tools/job/memory_probe.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Of a file that the kernel writes: such files have no size and cannot be mapped. Empty when it is
// not there.
std::string kernel_text(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  const std::string text = kernel_text(file);  // "max": no limit
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// What control groups leave to this process; nullopt without a limit.
std::optional<std::int64_t> cgroup_bytes() {
  const fs::path root = "/sys/fs/cgroup";
  std::optional<std::int64_t> least;
  const auto look_at = [&](const fs::path& limit_file, const fs::path& use_file) {
    const auto limit = number_in(limit_file);
    if (!limit) return;
    const std::int64_t left = std::max<std::int64_t>(0, *limit - number_in(use_file).value_or(0));
    if (!least || left < *least) least = left;
  };
  look_at(root / "memory.max", root / "memory.current");
  look_at(root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes");
  // Version 2: "0::/system.slice/slurm/job_7"; every group on the way down may have a limit.
  const std::string groups = kernel_text("/proc/self/cgroup");
  const std::size_t at = groups.find("0::/");
  if (at == std::string::npos) return least;
  const fs::path own = groups.substr(at + 4, groups.find('\n', at) - at - 4);
  fs::path folder = root;
  for (const fs::path& part : own) {
    folder /= part;
    look_at(folder / "memory.max", folder / "memory.current");
  }
  return least;
}

}  // namespace

std::int64_t free_memory_bytes() {
  std::optional<std::int64_t> bytes = available_bytes_of(kernel_text("/proc/meminfo"));
  if (!bytes) bytes = std::int64_t{::sysconf(_SC_AVPHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return std::min(*bytes, cgroup_bytes().value_or(*bytes));
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
