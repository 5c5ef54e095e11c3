#include "tools/bench/statistics.h"

#include <cmath>

#include "base/error.h"

namespace longhaul::bench {

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double log_slope(std::span<const TimeAtLength> points) {
  double x_sum = 0, y_sum = 0;
  for (const TimeAtLength& p : points) {
    require(p.length > 0 && p.seconds > 0, "log_slope: lengths and times must be positive");
    x_sum += std::log(p.length);
    y_sum += std::log(p.seconds);
  }
  const auto n = static_cast<double>(points.size());
  double xx = 0, xy = 0;
  for (const TimeAtLength& p : points) {
    const double x = std::log(p.length) - x_sum / n;
    xx += x * x;
    xy += x * (std::log(p.seconds) - y_sum / n);
  }
  require(xx > 0, "log_slope: two different lengths are needed");
  return xy / xx;
}

}  // namespace longhaul::bench
