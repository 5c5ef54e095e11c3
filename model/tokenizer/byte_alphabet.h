// GPT-2's alphabet: a printable character for each of the 256 bytes, so that byte-level
// vocabularies can be written as text ("Ġthe" is " the").
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::tokenization {

// The bytes that `text` stands for; nullopt when a character is not of the alphabet.
std::optional<std::string> bytes_of(std::string_view text);

}  // namespace longhaul::tokenization
