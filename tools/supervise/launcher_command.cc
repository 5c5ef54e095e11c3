#include "tools/supervise/launcher_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxHostfileBytes = 16 << 20;

template <std::size_t kSize>
bool is_one_of(const std::array<std::string_view, kSize>& flags, std::string_view word) {
  return std::find(flags.begin(), flags.end(), word) != flags.end();
}

// Open MPI takes one dash or two.
bool names_hosts(std::string_view word) {
  return is_one_of(std::array<std::string_view, 3>{"--host", "-host", "-H"}, word);
}
bool names_hostfile(std::string_view word) {
  return is_one_of(
      std::array<std::string_view, 4>{"--hostfile", "-hostfile", "--machinefile", "-machinefile"},
      word);
}
bool names_count(std::string_view word) {
  return is_one_of(std::array<std::string_view, 5>{"-n", "--n", "-np", "--np", "-c"}, word);
}
bool names_setting(std::string_view word) {
  return is_one_of(std::array<std::string_view, 4>{"--mca", "-mca", "--gmca", "-gmca"}, word);
}

std::optional<int> count_in(std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1) return std::nullopt;
  return count;
}

constexpr std::string_view kAllSlots = "*";  // in --host, of a host: as many as it has cores

// "node01:4", "node01:*" or "node01", which has so many slots; IPv6 addresses are no host names
// here.
HostSlots parse_host(std::string_view text, std::optional<int> n_usual) {
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    const std::string_view slots = text.substr(colon + 1);
    const auto count = count_in(slots);
    if (count || slots == kAllSlots || slots == "auto")
      return {std::string(text.substr(0, colon)), count};
  }
  return {std::string(text), n_usual};
}

// A line of a host file behind its host: "slots=4", "slots = 4 max_slots = 8".
std::optional<int> slots_in(std::string_view settings) {
  constexpr std::array<std::string_view, 3> kNames = {"slots", "cpu", "count"};
  std::string apart;
  for (const char c : settings) apart += c == '=' ? std::string(" = ") : std::string(1, c);
  std::istringstream text(apart);
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (!is_one_of(kNames, words[i]) || words[i + 1] != "=") continue;
    if (const auto count = count_in(words[i + 2])) return count;
  }
  return std::nullopt;
}

void add(std::vector<HostSlots>& hosts, const HostSlots& host) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const HostSlots& other) { return other.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(host);
  } else {
    // A host that is named twice has as many slots.
    same->n_slots = same->n_slots.value_or(1) + host.n_slots.value_or(1);
  }
}

}  // namespace

LauncherCommand split_command(const Words& words, std::string_view program_name) {
  const auto program = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return std::filesystem::path(word).filename() == program_name;
  });
  if (program == words.end() || program == words.begin()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("after -- stands the whole command, launcher and program: mpirun -n 4 "
                            "{} run ...",
                            program_name));
  }
  return {{words.begin(), program}, {program, words.end()}};
}

std::vector<HostSlots> parse_hostfile(std::string_view text) {
  std::vector<HostSlots> hosts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    HostSlots host = parse_host(word, std::nullopt);
    std::string settings;
    std::getline(words, settings);
    if (const auto count = slots_in(settings)) host.n_slots = count;
    add(hosts, host);
  }
  return hosts;
}

std::vector<HostSlots> hosts_of(const Words& launcher) {
  std::vector<HostSlots> hosts;
  std::vector<HostSlots> of_file;
  for (std::size_t i = 0; i + 1 < launcher.size(); ++i) {
    if (names_hosts(launcher[i])) {
      std::istringstream list(launcher[i + 1]);
      for (std::string host; std::getline(list, host, ',');) add(hosts, parse_host(host, 1));
    } else if (names_hostfile(launcher[i])) {
      of_file = parse_hostfile(read_file(launcher[i + 1], kMaxHostfileBytes));
    }
  }
  if (hosts.empty() || of_file.empty()) return hosts.empty() ? of_file : hosts;
  // With both, --host chooses from the file, and counts where that does not.
  std::vector<HostSlots> chosen;
  for (HostSlots& host : of_file) {
    const auto named = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& other) {
      return other.name == host.name;
    });
    if (named == hosts.end()) continue;
    if (!host.n_slots) host.n_slots = named->n_slots;
    chosen.push_back(std::move(host));
  }
  return chosen;
}

Words with_hosts(const Words& launcher, const std::vector<HostSlots>& hosts) {
  Words out;
  std::optional<int> n_slots = 0;  // none: not known
  std::string list;
  for (const HostSlots& host : hosts) {
    const std::string slots = host.n_slots ? std::to_string(*host.n_slots) : std::string(kAllSlots);
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, slots);
    n_slots = n_slots && host.n_slots ? std::optional(*n_slots + *host.n_slots) : std::nullopt;
  }
  for (std::size_t i = 0; i < launcher.size(); ++i) {
    const bool has_value = i + 1 < launcher.size();
    if (has_value && (names_hosts(launcher[i]) || names_hostfile(launcher[i]))) {
      ++i;
      continue;
    }
    out.push_back(launcher[i]);
    if (!has_value || !names_count(launcher[i])) continue;
    const auto count = count_in(launcher[++i]);
    out.push_back(count && n_slots ? std::to_string(std::min(*count, *n_slots)) : launcher[i]);
  }
  out.insert(out.end(), {"--host", list});
  return out;
}

Words probe_of(const Words& launcher, const std::string& host) {
  Words out{launcher.front()};
  for (std::size_t i = 1; i < launcher.size(); ++i) {
    if (launcher[i] == "--allow-run-as-root") out.push_back(launcher[i]);
    if (launcher[i] == "--prefix" && i + 1 < launcher.size())
      out.insert(out.end(), {launcher[i], launcher[i + 1]});
    if (names_setting(launcher[i]) && i + 2 < launcher.size())
      out.insert(out.end(), {launcher[i], launcher[i + 1], launcher[i + 2]});
  }
  out.insert(out.end(), {"--host", host + ":1", "-n", "1", "true"});
  return out;
}

}  // namespace longhaul
