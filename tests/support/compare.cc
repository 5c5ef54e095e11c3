#include "tests/support/compare.h"

#include <cmath>
#include <cstddef>
#include <vector>

namespace longhaul::test {

testing::AssertionResult close(std::span<const float> got, std::span<const double> want,
                               const Tolerance& tolerance) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure()
           << "sizes differ: got " << got.size() << ", want " << want.size();
  }
  double worst_share = 0;
  std::size_t worst = 0;
  double dot = 0;
  double got_square = 0;
  double want_square = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double g = got[i];
    const double w = want[i];
    if (!std::isfinite(g) || !std::isfinite(w)) {
      const bool same = (std::isnan(g) && std::isnan(w)) || g == w;
      if (same) continue;
      return testing::AssertionFailure() << "element " << i << ": got " << g << ", want " << w;
    }
    const double share =
        std::fabs(g - w) / (tolerance.absolute + tolerance.relative * std::fabs(w));
    if (share > worst_share) {
      worst_share = share;
      worst = i;
    }
    dot += g * w;
    got_square += g * g;
    want_square += w * w;
  }
  if (worst_share > 1) {
    return testing::AssertionFailure()
           << "element " << worst << " of " << got.size() << ": got " << got[worst] << ", want "
           << want[worst] << " (" << worst_share * 100 << " % of the allowance)";
  }
  const double norm = std::sqrt(got_square * want_square);
  if (norm > 0 && dot / norm < tolerance.min_cosine) {
    return testing::AssertionFailure()
           << "cosine " << dot / norm << " is below " << tolerance.min_cosine;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult close(std::span<const float> got, std::span<const float> want,
                               const Tolerance& tolerance) {
  const std::vector<double> wide(want.begin(), want.end());
  return close(got, std::span<const double>(wide), tolerance);
}

double nmse(std::span<const float> got, std::span<const double> want) {
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < got.size() && i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    square += want[i] * want[i];
  }
  return got.size() == want.size() && square > 0 ? error / square : std::nan("");
}

}  // namespace longhaul::test
