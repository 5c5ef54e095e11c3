// Builds safetensors files in memory for tests, also wrong ones: header text and data are given
// separately.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::test {

// 8 bytes of length (that of `header` unless given), the header, the data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xffU);
  bytes += header;
  bytes += data;
  return bytes;
}
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return safetensors_bytes(header, data, header.size());
}

inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace longhaul::test
