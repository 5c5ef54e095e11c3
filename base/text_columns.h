// Texts in the columns of a terminal. Pure.
#pragma once
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace longhaul {

// Columns of a line that nothing cuts: what goes into a file.
inline constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();

// Characters, not bytes: "±" takes one column.
std::size_t n_columns(std::string_view text);

// Its first `width` columns at most; characters stay whole.
std::string_view first_columns(std::string_view text, std::size_t width);

// `text` in lines of at most `width` columns, cut between words. The first begins in column
// `begin`, the others behind `indent` spaces. Line breaks of the text stay, and lines that fit. A
// word that is too long for a line goes on behind a comma; one without stays as long as it is.
struct WrapArgs {
  std::size_t width = 80;
  std::size_t indent = 0;
  std::size_t begin = indent;
};
std::string wrapped_text(std::string_view text, const WrapArgs& args);

}  // namespace longhaul
