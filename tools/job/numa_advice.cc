#include "tools/job/numa_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/kernel_text.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// The number at the front of `text`, which is taken off; nullopt when there is none.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// Whether a list like "0-3,8,10-11" has one of the cores.
bool list_has_any(std::string_view list, const cpu_set_t& cores) {
  while (const auto first = take_number(list)) {
    int last = *first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      last = take_number(list).value_or(last);
    }
    for (int core = *first; core <= std::min(last, CPU_SETSIZE - 1); ++core) {
      if (CPU_ISSET(core, &cores)) return true;
    }
    if (!list.starts_with(',')) return false;
    list.remove_prefix(1);
  }
  return false;
}

}  // namespace

std::vector<int> numa_nodes_of(const cpu_set_t& cores, const fs::path& nodes_folder) {
  std::vector<int> nodes;
  std::error_code error;
  for (fs::directory_iterator at(nodes_folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::string_view rest = name;
    if (!rest.starts_with("node")) continue;
    rest.remove_prefix(4);
    const auto number = take_number(rest);
    if (!number || !rest.empty()) continue;
    if (list_has_any(kernel_text(at->path() / "cpulist"), cores)) nodes.push_back(*number);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::optional<std::string> numa_advice(const std::vector<int>& nodes, int n_threads) {
  if (nodes.size() < 2 || n_threads < 2) return std::nullopt;
  return fmt::format(
      "{} threads have cores of {} NUMA nodes ({}), and each node reads the others' memory more "
      "slowly: start one rank per node (mpirun --map-by ppr:1:numa --bind-to numa, srun "
      "--cpu-bind=ldoms)",
      n_threads, nodes.size(), fmt::join(nodes, ", "));
}

}  // namespace longhaul
