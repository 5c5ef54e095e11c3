// Characters of UTF-8 text as Python's str methods see them. Pure.
#pragma once
#include <cstddef>
#include <string_view>

#include "model/chat/text.h"

namespace longhaul::chat {

// The character that begins at `at`; bytes that are no UTF-8 count as one character each.
struct Character {
  char32_t code = 0;
  std::size_t length = 1;  // in bytes
};
Character character_at(std::string_view text, std::size_t at);
std::size_t count_code_points(std::string_view text);
// The byte at which character `index` begins; the end for one beyond it.
std::size_t byte_of_character(std::string_view text, std::size_t index);

bool is_python_space(char32_t code);
bool is_letter(char32_t code);
bool is_digit(char32_t code);
bool is_printable(char32_t code);  // Python's: repr writes others as escapes

// str.upper, lower, title, capitalize, for all of Unicode. What came from data stays marked.
enum class Case { kUpper, kLower, kTitle, kCapitalize };
Text change_case(const Text& text, Case to);
bool has_only_case(std::string_view text, Case want);  // str.isupper, str.islower

// [begin, end) of `text` without the white space at its ends, or the characters of `chars`.
enum class Side { kBoth, kLeft, kRight };
ByteRange stripped(std::string_view text, Side side, const std::string_view* chars = nullptr);

}  // namespace longhaul::chat
