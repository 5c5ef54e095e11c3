#include "coordinator/run_figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {

std::string count_text(double count) {
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (count >= 1e4) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

const std::vector<double>& Durations::bounds() {
  static const std::vector<double> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25, 0.5,  1,    2.5,  5,     10,
      20,    40,     80,    160,  320,   640,  1280, 2560, 3600, 5400, 7200, 10800, 14400};
  return kBounds;
}

void Durations::add(double seconds, std::int64_t times) {
  counts_.resize(bounds().size() + 1);
  const auto at = std::lower_bound(bounds().begin(), bounds().end(), seconds) - bounds().begin();
  counts_[static_cast<std::size_t>(at)] += times;
  count_ += times;
  sum_ += seconds * static_cast<double>(times);
}

std::vector<std::int64_t> Durations::cumulative() const {
  std::vector<std::int64_t> all(bounds().size());
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!counts_.empty()) sum += counts_[i];
    all[i] = sum;
  }
  return all;
}

}  // namespace longhaul
