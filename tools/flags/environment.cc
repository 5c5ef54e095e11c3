// Settings that the program takes from the environment; what launchers say in it is read in
// cluster/comm.
#include "tools/flags/environment.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/spelling.h"
#include "kernels/cpu/isa.h"
#include "tools/flags/commands.h"

namespace longhaul {
namespace {

std::string variable_of(std::string_view flag) {
  std::string name = "LONGHAUL_";
  for (const char c : flag)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// What somebody may have set -> the variable that is read: a flag of several names has one.
void add_variables(const CLI::App& command, std::map<std::string, std::string>& names) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_envname().empty()) continue;
    for (const std::string& flag : option->get_lnames())
      names.emplace(variable_of(flag), option->get_envname());
    names[option->get_envname()] = option->get_envname();
  }
  for (const CLI::App* below : command.get_subcommands({})) add_variables(*below, names);
}

}  // namespace

void name_environment_variables(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option == command.get_help_ptr()) continue;
    option->envname(variable_of(option->get_lnames().front()));
  }
}

std::filesystem::path hub_cache() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (const auto cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const auto home = variable("HF_HOME"); !home.empty()) return home / "hub";
  return variable("HOME") / ".cache" / "huggingface" / "hub";
}

std::optional<std::int64_t> job_end_time() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  if (text == nullptr) return std::nullopt;
  std::int64_t seconds = 0;
  const char* end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, seconds);
  if (error != std::errc() || read != end || seconds <= 0) return std::nullopt;
  return seconds;
}

void choose_isa() {
  if (const char* name = std::getenv("LONGHAUL_ISA"); name != nullptr && *name != '\0')
    set_active_isa(isa_named(name));
}

std::vector<std::string> misspelt_variables(const CLI::App& program) {
  std::map<std::string, std::string> names = {{"LONGHAUL_ISA", "LONGHAUL_ISA"}};
  add_variables(program, names);
  std::vector<std::string_view> known;
  for (const auto& [name, read] : names) known.push_back(name);
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("LONGHAUL_")) continue;
    const auto meant = names.find(names.contains(name) ? name : nearly(name, known));
    if (meant != names.end() && meant->second != name)
      found.push_back(fmt::format("{}: did you mean {}?", name, meant->second));
  }
  return found;
}

}  // namespace longhaul
