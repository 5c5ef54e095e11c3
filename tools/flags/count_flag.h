// Counts of tokens with letters: --document-tokens 128K.
#pragma once
#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>

#include "base/sizes.h"

namespace longhaul {

// Checks of options that count: what is held as 32 bits, and what may be longer than that (tokens
// of all documents).
inline const auto kCount =
    CLI::Range(std::int64_t{1}, std::int64_t{std::numeric_limits<std::int32_t>::max()});
inline const auto kFromZero =
    CLI::Range(std::int64_t{0}, std::int64_t{std::numeric_limits<std::int32_t>::max()});
inline const auto kBlockTokens = CLI::Range(std::int64_t{1}, std::int64_t{65536});
inline const auto kLongCount = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);

// For an option that is a whole number: option->transform(with_letters()) lets people write 128K
// for 131072. What is no count is left to the option's own checks.
inline CLI::Validator with_letters() {
  return {[](std::string& text) {
            if (const auto count = count_from(text)) text = std::to_string(*count);
            return std::string();
          },
          ""};
}

}  // namespace longhaul
