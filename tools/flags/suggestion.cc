#include "tools/flags/suggestion.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>

#include "base/spelling.h"

namespace longhaul {

std::string suggestion(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* command = &program;
  for (const std::string& word : words) {
    const bool is_flag = word.size() > 1 && word.front() == '-';
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> known;
    if (is_flag) {
      for (const CLI::Option* option : command->get_options()) {
        for (const std::string& flag : option->get_lnames()) known.push_back("--" + flag);
        for (const std::string& flag : option->get_snames()) known.push_back("-" + flag);
      }
    } else {
      for (const CLI::App* below : command->get_subcommands({})) known.push_back(below->get_name());
    }
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      if (!is_flag) command = command->get_subcommand(name);
      continue;
    }
    if (is_flag && name.size() < 4) continue;  // short flags are all alike
    const std::string meant =
        nearly(name, std::vector<std::string_view>(known.begin(), known.end()));
    if (!meant.empty()) return meant;
  }
  return "";
}

}  // namespace longhaul
