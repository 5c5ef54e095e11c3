#include "cluster/wire/crc32c.h"

#include <array>

namespace longhaul {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t value = 0xffffffffU;
  for (const std::byte b : bytes) {
    value = kTable[(value ^ static_cast<std::uint32_t>(b)) & 0xffU] ^ (value >> 8);
  }
  return ~value;
}

}  // namespace longhaul
