#include "tests/support/random.h"

#include <algorithm>
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

std::vector<float> Random::normals(std::int64_t n, double scale) {
  std::normal_distribution<double> distribution(0.0, scale);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& value : out) value = static_cast<float>(distribution(engine_));
  return out;
}

}  // namespace longhaul::test
