// Counts of tokens with letters: --document-tokens 128K.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

#include "base/sizes.h"

namespace longhaul {

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
