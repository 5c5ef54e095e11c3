// Numbers with fractions as flags have them: --retrieval-ratio 0.5.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace longhaul {

// For an option's check(): a number of [least, most], in the forms that CLI11 reads. CLI::Range
// lets nan pass, which is neither less than the least nor more than the most.
inline CLI::Validator number_between(double least, double most) {
  return {[least, most](std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && least <= value && value <= most) return std::string();
            return fmt::format("{} is not a number from {:g} to {:g}", text, least, most);
          },
          fmt::format("FLOAT in [{:g} - {:g}]", least, most)};
}

}  // namespace longhaul
