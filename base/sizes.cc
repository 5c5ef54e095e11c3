#include "base/sizes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace longhaul {
namespace {

// The factor of a unit written in lower case, or 0.
double factor_of(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  constexpr std::string_view kLetters = "kmgtp";
  const auto power = kLetters.find(unit.front());
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = unit.substr(1);
  const double exponent = static_cast<double>(power) + 1;
  if (rest.empty() || rest == "ib" || rest == "i") return std::pow(1024.0, exponent);
  if (rest == "b") return std::pow(1000.0, exponent);
  return 0;
}

struct Amount {
  double number = 0;
  std::string unit;  // in lower case
};

std::optional<Amount> amount_from(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  Amount amount;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount.number);
  if (error != std::errc() || !std::isfinite(amount.number) || amount.number < 0)
    return std::nullopt;
  for (const char c : text.substr(static_cast<std::size_t>(end - text.data()))) {
    if (c == ' ' && amount.unit.empty()) continue;
    amount.unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return amount;
}

const double kMost = std::ldexp(1.0, 62);

}  // namespace

std::optional<std::int64_t> byte_size_from(std::string_view text) {
  const std::optional<Amount> amount = amount_from(text);
  if (!amount) return std::nullopt;
  const double factor = factor_of(amount->unit);
  const double bytes = amount->number * factor;
  if (factor == 0 || bytes > kMost) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::optional<std::int64_t> count_from(std::string_view text) {
  const std::optional<Amount> amount = amount_from(text);
  if (!amount || amount->unit == "b") return std::nullopt;  // 8B are bytes, or billions
  const double factor = factor_of(amount->unit);
  const double count = amount->number * factor;
  if (factor == 0 || count > kMost || count != std::floor(count)) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

std::string format_byte_size(std::int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int decimals = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace longhaul
