#include "tools/bench/number_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/sizes.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;
constexpr std::size_t kMostNumbers = 1000;

[[noreturn]] void refuse(std::string_view flag, std::string_view part) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: '{}' is no number or range; write 512, 4K, 0-4096+1024 or 1K-64K*2, "
                          "separated by commas",
                          flag, part));
}

// The number that `text` starts with, which is cut off.
std::optional<std::int64_t> take_number(std::string_view& text) {
  const std::size_t length = std::min(text.find_first_of("-+*,"), text.size());
  const std::optional<std::int64_t> value = count_from(text.substr(0, length));
  text.remove_prefix(length);
  if (value && *value > kMost) return std::nullopt;
  return value;
}

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  char step_kind = '+';
  std::int64_t step = 1;
};

Range read_range(std::string_view part, std::string_view flag) {
  std::string_view rest = part;
  const auto number = [&] {
    const std::optional<std::int64_t> value = take_number(rest);
    if (!value) refuse(flag, part);
    return *value;
  };
  Range range;
  range.first = range.last = number();
  if (rest.starts_with('-')) {
    rest.remove_prefix(1);
    range.last = number();
    if (rest.starts_with('+') || rest.starts_with('*')) {
      range.step_kind = rest.front();
      rest.remove_prefix(1);
      range.step = number();
    }
  }
  const bool moves = range.step_kind == '+' ? range.step >= 1 : range.step >= 2 && range.first >= 1;
  if (!rest.empty() || range.last < range.first || !moves) refuse(flag, part);
  return range;
}

}  // namespace

std::vector<std::int64_t> parse_ranges(std::string_view text, std::string_view flag) {
  std::vector<std::int64_t> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const Range range = read_range(part, flag);
    for (std::int64_t value = range.first; value <= range.last;) {
      if (numbers.size() >= kMostNumbers) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: '{}' gives more than {} numbers", flag, part, kMostNumbers));
      }
      numbers.push_back(value);
      if (range.step_kind == '*' && value > range.last / range.step) break;  // no overflow
      value = range.step_kind == '+' ? value + range.step : value * range.step;
    }
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

PromptAndGeneration parse_pair(std::string_view text, std::string_view flag) {
  const auto refuse_pair = [&] {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: '{}' is no pair; write PROMPT,GENERATED, such as 512,128", flag, text));
  };
  std::string_view rest = text;
  const std::optional<std::int64_t> n_prompt = take_number(rest);
  if (!n_prompt || !rest.starts_with(',')) refuse_pair();
  rest.remove_prefix(1);
  const std::optional<std::int64_t> n_gen = take_number(rest);
  if (!n_gen || !rest.empty() || *n_prompt < 1 || *n_gen < 1) refuse_pair();
  return {*n_prompt, *n_gen};
}

}  // namespace longhaul::bench
