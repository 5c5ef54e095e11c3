// What a benchmark's samples are boiled down to. Pure.
#pragma once
#include <span>

namespace longhaul::bench {

double mean(std::span<const double> values);  // 0 of none
// Of a sample, so divided by n - 1 as llama-bench does; 0 of fewer than two values.
double standard_deviation(std::span<const double> values);

struct TimeAtLength {
  double length;
  double seconds;
};
// Slope of log time over log length, by least squares: 1 where time is proportional to length, 2
// where it is to its square. Needs two different lengths; all figures must be positive.
double log_slope(std::span<const TimeAtLength> points);

}  // namespace longhaul::bench
