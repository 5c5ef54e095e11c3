#include "tools/flags/suggestion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/spelling.h"

namespace longhaul {
namespace {

using Words = std::vector<std::string>;

bool is_flag(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

Words flags_of(const CLI::App& command) {
  Words names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& flag : option->get_lnames()) names.push_back("--" + flag);
    for (const std::string& flag : option->get_snames()) names.push_back("-" + flag);
  }
  return names;
}

Words commands_below(const CLI::App& command) {
  Words names;
  for (const CLI::App* below : command.get_subcommands({})) names.push_back(below->get_name());
  return names;
}

std::string with_suggestion(const std::string& word, std::string_view what, const Words& known) {
  const std::string name = word.substr(0, word.find('='));
  const bool is_short = is_flag(name) && name.size() < 4;  // short flags are all alike
  const std::string meant =
      is_short ? "" : nearly(name, std::vector<std::string_view>(known.begin(), known.end()));
  return fmt::format("{} is {}{}", name, what,
                     meant.empty() ? "" : "; did you mean " + meant + "?");
}

// Of one command, not of those below it.
std::string unknown_to(const CLI::App& command) {
  Words words = command.remaining();
  std::erase(words, "--");
  if (words.empty()) return "";
  const Words below = commands_below(command);
  if (!below.empty() && !is_flag(words.front()))
    return with_suggestion(words.front(), "no command", below);
  const auto flag = std::find_if(words.begin(), words.end(), is_flag);
  if (flag != words.end()) return with_suggestion(*flag, "not known", flags_of(command));
  return fmt::format("not expected: {} (text of several words needs quotes)",
                     fmt::join(words, " "));
}

}  // namespace

std::string unknown_words(const CLI::App& program) {
  std::string text = unknown_to(program);
  for (const CLI::App* command : program.get_subcommands())  // that were named
    if (text.empty()) text = unknown_words(*command);
  return text;
}

}  // namespace longhaul
