// Settings that the program takes from the environment; what launchers say in it is read in
// cluster/comm.
#include "tools/flags/environment.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>
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

// One for each long name of the option, in their order.
std::vector<std::string> variables_of(const CLI::App& command, const CLI::Option& option) {
  std::vector<std::string> variables;
  if (&option == command.get_help_ptr()) return variables;
  for (const std::string& name : option.get_lnames()) variables.push_back(variable_of(name));
  return variables;
}

// CLI11 takes a variable without a value for one that is not set.
std::string_view value_of(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr ? value : "";
}

void add_variables(const CLI::App& command, std::set<std::string>& names) {
  for (const CLI::App* below : command.get_subcommands({})) {
    for (const CLI::Option* option : below->get_options())
      for (const std::string& variable : variables_of(*below, *option)) names.insert(variable);
    add_variables(*below, names);
  }
}

std::vector<std::string> misspelt_variables(const CLI::App& program) {
  std::set<std::string> names = {"LONGHAUL_ISA", "LONGHAUL_HELP", "LONGHAUL_VERSION"};
  add_variables(program, names);
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("LONGHAUL_") || names.contains(name)) continue;
    if (const std::string meant = nearly(name, known); !meant.empty())
      found.push_back(fmt::format("{}: did you mean {}?", name, meant));
  }
  return found;
}

// Of the command that runs, those whose value another name of the flag has replaced.
void add_overruled_variables(const CLI::App& command, std::vector<std::string>& found) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string& read = option->get_envname();
    if (read.empty()) continue;
    for (const std::string& variable : variables_of(command, *option)) {
      const std::string_view value = value_of(variable);
      if (!value.empty() && value != value_of(read))
        found.push_back(fmt::format("{} is left out: {} sets the same flag", variable, read));
    }
  }
  for (const CLI::App* below : command.get_subcommands()) add_overruled_variables(*below, found);
}

// Of the commands that run, those whose value is a variable's.
void add_options_of_variables(const CLI::App& command, std::vector<const CLI::Option*>& found) {
  const std::vector<CLI::Option*>& given = command.parse_order();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_envname().empty()) continue;
    if (std::find(given.begin(), given.end(), option) == given.end()) found.push_back(option);
  }
  for (const CLI::App* below : command.get_subcommands()) add_options_of_variables(*below, found);
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; }

// Whole words alone.
void replace_words(std::string& text, const std::string& word, const std::string& by) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const std::size_t end = at + word.size();
    const bool is_whole =
        (at == 0 || !is_of_name(text[at - 1])) && (end == text.size() || !is_of_name(text[end]));
    if (is_whole) text.replace(at, word.size(), by);
    at += is_whole ? by.size() : word.size();
  }
}

// "--top-p" is "top_p" where a value is checked as that of a request.
std::string field_of(std::string flag) {
  std::replace(flag.begin(), flag.end(), '-', '_');
  return flag;
}

}  // namespace

void name_environment_variables(CLI::App& command) {
  command.preparse_callback([&command](std::size_t) {
    for (CLI::Option* option : command.get_options()) {
      const std::vector<std::string> variables = variables_of(command, *option);
      const auto set = std::find_if(variables.begin(), variables.end(),
                                    [](const auto& name) { return !value_of(name).empty(); });
      if (set != variables.end()) option->envname(*set);
    }
  });
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

std::string with_variables_named(const CLI::App& program, std::string text) {
  std::vector<const CLI::Option*> options;
  add_options_of_variables(program, options);
  for (const CLI::Option* option : options) {
    const std::string& variable = option->get_envname();
    for (const std::string& name : option->get_lnames()) {
      replace_words(text, "--" + name, variable);
      const std::string field = field_of(name);
      if (text.starts_with(field + " is ")) text.replace(0, field.size(), variable);
    }
  }
  return text;
}

std::vector<std::string> warnings_about_variables(const CLI::App& program) {
  std::vector<std::string> warnings = misspelt_variables(program);
  add_overruled_variables(program, warnings);
  return warnings;
}

}  // namespace longhaul
