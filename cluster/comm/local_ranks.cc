#include "cluster/comm/local_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/kernel_text.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Open MPI and PMIx; MPICH's process managers; Slurm.
constexpr std::array<const char*, 4> kJobNames = {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_STEP_ID",
                                                  "OMPI_MCA_ess_base_jobid"};
constexpr std::array<const char*, 4> kRankNames = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                                   "SLURM_PROCID"};

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

std::optional<int> rank_in(std::string_view environment) {
  for (const char* name : kRankNames) {
    if (const auto rank = number_of(variable_in(environment, name))) return rank;
  }
  return std::nullopt;
}

bool is_same_job(std::string_view environment) {
  for (const char* name : kJobNames) {
    const std::string_view own = own_variable(name);
    if (!own.empty()) return variable_in(environment, name) == own;
  }
  return false;
}

std::string_view doing(char state) {
  switch (state) {
    case 'T':
    case 't':
      return "is stopped (SIGSTOP, or a debugger holds it): let it go on, or end it";
    case 'Z':
    case 'X':
      return "has ended";
    case 'D':
      return "waits for a disk or a network file system";
    default:
      return "is there and waits";
  }
}

}  // namespace

std::optional<int> rank_by_launcher() {
  for (const char* name : kRankNames) {
    if (const auto rank = number_of(own_variable(name))) return rank;
  }
  return std::nullopt;
}

std::vector<LocalRank> ranks_on_this_host() {
  std::vector<LocalRank> ranks;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const auto process = number_of(at->path().filename().string());
    if (!process) continue;
    std::error_code ignored;
    if (fs::read_symlink(at->path() / "exe", ignored) != program) continue;
    const std::string environment = kernel_text(at->path() / "environ");
    const auto rank = rank_in(environment);
    if (!rank || !is_same_job(environment)) continue;
    ranks.push_back(
        {.rank = *rank, .process = *process, .state = state_in(kernel_text(at->path() / "stat"))});
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const LocalRank& a, const LocalRank& b) { return a.rank < b.rank; });
  return ranks;
}

std::optional<int> ranks_expected_here() {
  return number_of(own_variable("OMPI_COMM_WORLD_LOCAL_SIZE"));
}

std::string describe_start(std::string_view host, const std::vector<LocalRank>& ranks,
                           std::optional<int> n_expected) {
  std::vector<std::string> parts;
  for (const LocalRank& rank : ranks) {
    // Those that wait are many and tell little.
    if (parts.size() < 8 || rank.is_stopped())
      parts.push_back(
          fmt::format("rank {} (process {}) {}", rank.rank, rank.process, doing(rank.state)));
  }
  const std::size_t n = ranks.size();
  std::string text = n_expected
                         ? fmt::format("on {} {} of {} ranks are there", host, n, *n_expected)
                         : fmt::format("on {} {} ranks are there", host, n);
  if (!parts.empty()) text += fmt::format(": {}", fmt::join(parts, "; "));
  return text;
}

std::string_view variable_in(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return {};
}

char state_in(std::string_view stat) {
  const std::size_t end = stat.rfind(')');
  if (end == std::string_view::npos || end + 2 >= stat.size()) return '?';
  return stat[end + 2];
}

}  // namespace longhaul
