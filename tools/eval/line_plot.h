// Curves over a common axis as a picture with axes, ticks and a legend. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace longhaul {

struct LinePlot {
  enum class Axis { kLinear, kLogarithmic };
  struct Series {
    std::string name = {};
    std::vector<std::pair<double, double>> points =
        {};                        // ascending x; non-finite ones are left out
    std::string description = {};  // stands under the name
  };
  std::string title = {};
  std::string subtitle = {};  // may be empty
  std::string x_name = {};
  std::string y_name = {};
  Axis x_axis = Axis::kLinear;
  Axis y_axis = Axis::kLinear;  // a logarithmic axis leaves out points that are not positive
  std::vector<Series> series = {};
};

std::string to_svg(const LinePlot& plot);

// Places for ticks of a linear axis over [low, high]: multiples of 1, 2 or 5 times a power of ten,
// at most `max_ticks`.
std::vector<double> linear_ticks(double low, double high, int max_ticks);
// The same for a logarithmic axis: 1, 2 and 5 times powers of ten, or the powers alone when those
// are too many.
std::vector<double> logarithmic_ticks(double low, double high, int max_ticks);

}  // namespace longhaul
