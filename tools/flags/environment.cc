// What the program takes from the environment; nothing else of it reads variables.
#include "tools/flags/environment.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/spelling.h"
#include "kernels/cpu/isa.h"
#include "tools/flags/commands.h"

namespace longhaul {
namespace {

void add_variables(const CLI::App& command, std::vector<std::string>& names) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_envname().empty()) names.push_back(option->get_envname());
  }
  for (const CLI::App* below : command.get_subcommands({})) add_variables(*below, names);
}

}  // namespace

void name_environment_variables(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option == command.get_help_ptr()) continue;
    std::string name = "LONGHAUL_";
    for (const char c : option->get_lnames().front())
      name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    option->envname(name);
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
  std::vector<std::string> names = {"LONGHAUL_ISA"};
  add_variables(program, names);
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    std::string_view name = *variable;
    name = name.substr(0, name.find('='));
    if (!name.starts_with("LONGHAUL_")) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (const std::string meant = nearly(name, known); !meant.empty())
      found.push_back(fmt::format("{}: did you mean {}?", name, meant));
  }
  return found;
}

}  // namespace longhaul
