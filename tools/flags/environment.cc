// What the program takes from the environment; nothing else of it reads variables.
#include "tools/flags/environment.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/cpu/isa.h"
#include "tools/flags/commands.h"

namespace longhaul {

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

}  // namespace longhaul
