#include "base/text_columns.h"

#include <algorithm>
#include <sstream>

namespace longhaul {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// How many bytes of a word stay in a line with so much room: up to a comma, all where none fits.
std::size_t part_in_room(std::string_view word, std::size_t room) {
  if (n_columns(word) <= room) return word.size();
  const std::size_t comma = first_columns(word, room).rfind(',');
  return comma == std::string_view::npos ? word.size() : comma + 1;
}

}  // namespace

std::size_t n_columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string_view first_columns(std::string_view text, std::size_t width) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && n++ == width) return text.substr(0, i);
  }
  return text;
}

std::string wrapped_text(std::string_view text, const WrapArgs& args) {
  std::string out;
  std::size_t column = args.begin;
  const auto break_line = [&] {
    out += '\n';
    out.append(args.indent, ' ');
    column = args.indent;
  };
  const auto room = [&] { return args.width - std::min(args.width, column); };
  std::istringstream paragraphs{std::string(text)};
  bool is_first = true;
  for (std::string paragraph; std::getline(paragraphs, paragraph); is_first = false) {
    if (!is_first) break_line();
    if (n_columns(paragraph) <= room()) {
      out += paragraph;
      continue;
    }
    std::istringstream words(paragraph);
    bool begins_line = true;
    for (std::string word; words >> word; begins_line = false) {
      if (!begins_line && 1 + n_columns(word) > room()) {
        break_line();
        begins_line = true;
      }
      if (!begins_line) {
        out += ' ';
        ++column;
      }
      for (std::size_t n = part_in_room(word, room()); n < word.size();
           n = part_in_room(word, room())) {
        out += word.substr(0, n);
        word.erase(0, n);
        break_line();
      }
      out += word;
      column += n_columns(word);
    }
  }
  return out;
}

}  // namespace longhaul
