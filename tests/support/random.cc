#include "tests/support/random.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace longhaul::test {

std::uint64_t base_seed() {
  const char* text = std::getenv("LONGHAUL_TEST_SEED");
  return text != nullptr ? std::stoull(text) : 1;
}

int intensity() {
  const char* text = std::getenv("LONGHAUL_TEST_INTENSITY");
  return text != nullptr ? std::clamp(std::stoi(text), 1, 4) : 1;
}

int engine_cases(int n) {
#ifdef LONGHAUL_SANITIZES_ADDRESS
  return (n * intensity() + 1) / 2;
#else
  return n * intensity();
#endif
}

// The polar method, two at a time, with the values of libstdc++'s std::normal_distribution, which
// takes half of the time of a test of kernels where it is compiled with sanitizers.
std::vector<float> Random::normals(std::int64_t n, double scale) {
  const auto uniform = [this] { return 2.0 * (static_cast<double>(engine_()) * 0x1p-64) - 1.0; };
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); i += 2) {
    double x;
    double y;
    double square;
    do {
      x = uniform();
      y = uniform();
      square = x * x + y * y;
    } while (square > 1.0 || square == 0.0);
    const double factor = std::sqrt(-2.0 * std::log(square) / square);
    out[i] = static_cast<float>(y * factor * scale);
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(x * factor * scale);
  }
  return out;
}

std::vector<std::int32_t> random_tokens(Random& random, std::int64_t n, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.integer(0, vocab_size - 1)));
  return tokens;
}

}  // namespace longhaul::test
