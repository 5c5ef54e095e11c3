// Times in seconds, with fractions: --dead-after 2.5.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

#include "tools/flags/number_flag.h"

namespace longhaul {

inline CLI::Option* add_seconds(CLI::App& app, const std::string& name,
                                std::chrono::milliseconds& value, double longest,
                                const std::string& help) {
  return app
      .add_option_function<double>(
          name,
          [&value](const double& seconds) {
            value = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
          },
          help)
      ->check(number_between(1.0, longest))
      ->default_str(fmt::format("{}", static_cast<double>(value.count()) / 1e3));
}

}  // namespace longhaul
