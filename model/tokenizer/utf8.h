// UTF-8: characters of valid text, and the replacement of invalid parts by U+FFFD as Python and
// Rust do it (one per maximal part of an ill-formed sequence; Unicode 15, section 3.9).
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace longhaul::tokenization {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  kCharacter,   // `length` bytes are one whole character
  kInvalid,     // `length` bytes can never become one
  kIncomplete,  // the text ends inside a character, after `length` bytes of it
};
struct Utf8Part {
  Utf8Kind kind;
  std::size_t length;
};

// What `text`, which is not empty, starts with.
Utf8Part first_part(std::string_view text);

// The length of the longest prefix that is valid UTF-8.
std::size_t valid_prefix(std::string_view text);

// Moves the certain part of `bytes` to `out`, invalid parts as U+FFFD; an incomplete character at
// the end stays in `bytes`.
void settle(std::string& bytes, std::string& out);

// The whole of `bytes` as valid UTF-8; an incomplete end becomes one U+FFFD.
std::string replace_invalid(std::string_view bytes);

// Bytes of the character that starts with `lead`, in valid text.
inline std::size_t char_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The character at `at` of valid text.
char32_t char_at(std::string_view text, std::size_t at);

// The start of the last character of valid `text`, which is not empty.
std::size_t last_char(std::string_view text);

// White_Space, and what the regex crate calls a word character (\w).
bool is_space(char32_t character);
bool is_word(char32_t character);

}  // namespace longhaul::tokenization
