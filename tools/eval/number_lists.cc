#include "tools/eval/number_lists.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/sizes.h"

namespace longhaul {
namespace {

constexpr std::int64_t kKilo = 1024;
constexpr std::int64_t kMega = kKilo * kKilo;
constexpr std::int64_t kMost = std::int64_t{1} << 40;

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(',');
    std::string_view part = text.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
bool read_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

std::vector<std::int64_t> parse_counts(std::string_view text, std::string_view flag) {
  std::vector<std::int64_t> counts;
  for (const std::string_view part : parts_of(text)) {
    const std::int64_t count = count_from(part).value_or(0);
    require(
        1 <= count && count <= kMost,
        fmt::format("{}: '{}' is no count; write 4096, 4K or 1M, separated by commas", flag, part));
    counts.push_back(count);
  }
  return counts;
}

std::vector<double> parse_percentages(std::string_view text, std::string_view flag) {
  std::vector<double> shares;
  for (const std::string_view part : parts_of(text)) {
    double value = 0;
    require(read_whole(part, value) && 0 <= value && value <= 100,
            fmt::format("{}: '{}' is no percentage; write numbers from 0 to 100, separated by "
                        "commas",
                        flag, part));
    shares.push_back(value / 100);
  }
  return shares;
}

std::string length_text(std::int64_t count) {
  if (count != 0 && count % kMega == 0) return fmt::format("{}M", count / kMega);
  if (count != 0 && count % kKilo == 0) return fmt::format("{}K", count / kKilo);
  return fmt::format("{}", count);
}

}  // namespace longhaul
