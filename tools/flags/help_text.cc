#include "tools/flags/help_text.h"

#include <CLI/CLI.hpp>

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_columns.h"

namespace longhaul {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kTextColumn = 26;
constexpr std::size_t kCommandColumn = 14;

// What an option takes: its choices, N for a number, else the word of its type_name().
std::string placeholder(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";  // a flag
  const std::string type = option.get_type_name();
  if (type.ends_with('}')) return type.substr(type.find('{'));
  const std::string word = type.substr(0, type.find(':'));  // conditions follow
  const bool is_number = word.empty() || word == "INT" || word == "UINT" || word == "FLOAT";
  return is_number ? "N" : word;
}

// A command that is too long for a line goes on behind a backslash, as a shell reads it.
std::string wrapped_command(std::string line, std::size_t indent) {
  std::string out;
  while (line.size() > kWidth) {
    const std::size_t cut = line.rfind(" -", kWidth - 2);
    if (cut == std::string::npos || line.find_first_not_of(' ') > cut) break;
    out += line.substr(0, cut) + " \\\n";
    line = std::string(indent + 2, ' ') + line.substr(cut + 1);
  }
  return out + line;
}

std::string wrapped_line(const std::string& line) {
  const std::size_t indent = line.find_first_not_of(' ');
  if (line.size() <= kWidth) return line;
  const std::string text = line.substr(indent);
  for (const std::string_view program : {"longhaul ", "mpirun ", "srun "})
    if (text.starts_with(program)) return wrapped_command(line, indent);
  return std::string(indent, ' ') + wrapped_text(text, {.indent = indent});
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string names = "  " + make_option_name(option, is_positional);
    const std::string what = placeholder(*option);
    if (!what.empty()) names += " " + what;
    names = wrapped_text(names.substr(2), {.indent = 6, .begin = 2}).insert(0, "  ");
    std::string text = option->get_description();
    if (!option->get_default_str().empty() && text.find("default") == std::string::npos)
      text += " (default: " + option->get_default_str() + ")";
    if (option->get_required()) text += " (required)";
    const std::size_t last_line = names.size() - (names.rfind('\n') + 1);
    if (last_line + 2 > kTextColumn || names.find('\n') != std::string::npos) {
      names += "\n" + std::string(kTextColumn, ' ');
    } else {
      names += std::string(kTextColumn - last_line, ' ');
    }
    return names + wrapped_text(text, {.indent = kTextColumn}) + "\n";
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    group = wrapped_text(group + ":", {});
    group.pop_back();  // which is put behind it
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::string name = "  " + command->get_name();
    name.resize(kCommandColumn, ' ');
    return name + wrapped_text(command->get_description(), {.indent = kCommandColumn}) + "\n";
  }
  std::string make_footer(const CLI::App* app) const override {
    std::string out;
    std::string sentence;  // lines of prose until one ends it
    const auto flush = [&] {
      if (!sentence.empty()) out += wrapped_line(std::exchange(sentence, "")) + "\n";
    };
    std::istringstream lines(app->get_footer());
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line.front() == ' ') {
        flush();
        out += wrapped_line(line) + "\n";
        continue;
      }
      sentence += sentence.empty() ? line : ' ' + line;
      if (line.ends_with('.') || line.ends_with(':')) flush();
    }
    flush();
    return out;
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped_text(app->get_description(), {}) + "\n";
  }
};

void use_formatter(CLI::App& app, const std::shared_ptr<HelpFormatter>& formatter) {
  app.formatter(formatter);
  for (CLI::App* below : app.get_subcommands([](CLI::App*) { return true; }))
    use_formatter(*below, formatter);
}

}  // namespace

void use_our_help(CLI::App& program) { use_formatter(program, std::make_shared<HelpFormatter>()); }

}  // namespace longhaul
