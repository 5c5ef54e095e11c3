#include "tools/flags/help_text.h"

#include <CLI/CLI.hpp>

#include <memory>
#include <sstream>
#include <string>

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

// Words of `text` in lines of kWidth, each but the first after `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t column) {
  std::string out;
  std::istringstream paragraphs(text);
  bool is_first = true;
  for (std::string paragraph; std::getline(paragraphs, paragraph);) {
    if (!is_first) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    is_first = false;
    std::istringstream words(paragraph);
    bool begins_line = true;
    for (std::string word; words >> word;) {
      if (!begins_line && column + 1 + word.size() > kWidth) {
        out += "\n" + std::string(indent, ' ');
        column = indent;
        begins_line = true;
      }
      if (!begins_line) {
        out += ' ';
        ++column;
      }
      out += word;
      column += word.size();
      begins_line = false;
    }
  }
  return out;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string names = "  " + make_option_name(option, is_positional);
    const std::string what = placeholder(*option);
    if (!what.empty()) names += " " + what;
    names = wrapped(names.substr(2), 6, 2).insert(0, "  ");
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
    return names + wrapped(text, kTextColumn, kTextColumn) + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::string name = "  " + command->get_name();
    name.resize(kCommandColumn, ' ');
    return name + wrapped(command->get_description(), kCommandColumn, kCommandColumn) + "\n";
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0, 0) + "\n";
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
