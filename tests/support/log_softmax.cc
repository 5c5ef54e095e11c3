#include "tests/support/log_softmax.h"

#include <algorithm>
#include <cmath>

namespace longhaul::test {

std::vector<double> log_softmax(std::span<const double> logits, std::int64_t width) {
  const std::size_t n = width == 0 ? logits.size() : static_cast<std::size_t>(width);
  std::vector<double> out;
  out.reserve(logits.size());
  for (std::size_t begin = 0; begin < logits.size(); begin += n) {
    const std::span<const double> row = logits.subspan(begin, n);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double x : row) sum += std::exp(x - largest);
    for (const double x : row) out.push_back(x - largest - std::log(sum));
  }
  return out;
}

}  // namespace longhaul::test
