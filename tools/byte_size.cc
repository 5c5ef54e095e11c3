#include "tools/byte_size.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

#include "base/error.h"

namespace longhaul {

std::size_t parse_byte_size(std::string_view text) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(rest, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  double factor = 0;
  constexpr std::string_view kUnits = "KMGT";
  if (unit.empty() || unit == "B") factor = 1;
  for (std::size_t i = 0; i < kUnits.size(); ++i) {
    const std::string letter(1, kUnits[i]);
    if (unit == letter || unit == letter + "B" || unit == letter + "IB")
      factor = std::pow(1024.0, static_cast<double>(i + 1));
  }
  if (error != std::errc() || factor == 0 || !(value >= 0 && value * factor < 0x1p62)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is no size; write a number with K, M, G or T, such as 8G or 512M", text));
  }
  return static_cast<std::size_t>(value * factor);
}

}  // namespace longhaul
