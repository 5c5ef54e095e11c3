#include "model/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr int kNoByte = -1;
constexpr char32_t kAlphabetEnd = 0x144;

// Bytes that print stand for themselves; the other 68 take U+0100, U+0101, ... in order.
std::array<std::int16_t, kAlphabetEnd> make_alphabet() {
  std::array<std::int16_t, kAlphabetEnd> byte_of{};
  byte_of.fill(kNoByte);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    byte_of[prints ? static_cast<char32_t>(byte) : next++] = static_cast<std::int16_t>(byte);
  }
  return byte_of;
}

}  // namespace

std::optional<std::string> bytes_of(std::string_view text) {
  static const auto kByteOf = make_alphabet();
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += char_length(text[at])) {
    const char32_t character = char_at(text, at);
    if (character >= kAlphabetEnd || kByteOf[character] == kNoByte) return std::nullopt;
    bytes += static_cast<char>(kByteOf[character]);
  }
  return bytes;
}

}  // namespace longhaul::tokenization
