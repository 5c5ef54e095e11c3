// Whole numbers as flags have them: counts with letters (--document-tokens 128K), seeds.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "base/sizes.h"

namespace longhaul {

// For an option's check(): a whole number of [least, most]. CLI::Range first makes the largest
// number there is of one that is larger.
inline CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return {[least, most](std::string& text) {
            std::int64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [read, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && read == end && least <= value && value <= most)
              return std::string();
            return fmt::format("{} is not a whole number from {} to {}", text, least, most);
          },
          ""};
}

// Checks of options that count: what is held as 32 bits, and what may be longer than that (tokens
// of all documents).
inline const auto kCount = whole_number(1, std::numeric_limits<std::int32_t>::max());
inline const auto kFromZero = whole_number(0, std::numeric_limits<std::int32_t>::max());
inline const auto kSmallCount =
    whole_number(1, std::int64_t{1} << 20);  // of documents, of answers' tokens
inline const auto kLongCount = whole_number(1, std::int64_t{1} << 40);
inline const auto kSeed = whole_number(0, std::numeric_limits<std::int64_t>::max());

// Tokens of a cache block: kernels take whole vectors of keys (kernels/kv_block_check.h).
inline const CLI::Validator kBlockTokens{
    [](std::string& text) {
      const bool is_good = whole_number(1, 65536)(text).empty() && std::stoll(text) % 16 == 0;
      return is_good ? "" : fmt::format("{} is not a multiple of 16 from 16 to 65536", text);
    },
    ""};
constexpr const char* kBlockTokensHelp =
    "Tokens of a cache block, a multiple of 16 (with kivi4 and kivi2 of 32)";

// For an option that is a whole number: option->transform(with_letters()) lets people write 128K
// for 131072. Numbers that are too small or too large are left to the option's own checks.
inline CLI::Validator with_letters() {
  return {[](std::string& text) {
            if (const auto count = count_from(text)) {
              text = std::to_string(*count);
            } else if (text.empty() || text.find_first_not_of("-0123456789") != std::string::npos) {
              return fmt::format("'{}' is not a count; write 4096, 128K or 1M", text);
            }
            return std::string();
          },
          ""};
}

}  // namespace longhaul
