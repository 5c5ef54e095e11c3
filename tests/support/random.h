// Random test data with a seed that is printed on failure. LONGHAUL_TEST_SEED repeats a run;
// LONGHAUL_TEST_INTENSITY (1 to 4) says how many cases property tests try.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace longhaul::test {

std::uint64_t base_seed();  // LONGHAUL_TEST_SEED, else 1
int intensity();            // LONGHAUL_TEST_INTENSITY, else 1
// How many random cases to try that each take the whole engine through a text: n times the
// intensity. With the address sanitizer, which makes them five times as slow, the first half.
int engine_cases(int n);

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t integer(std::int64_t min, std::int64_t max) {  // both included
    return std::uniform_int_distribution<std::int64_t>(min, max)(engine_);
  }
  double uniform(double min, double max) {
    return std::uniform_real_distribution<double>(min, max)(engine_);
  }
  bool chance(double probability) { return uniform(0, 1) < probability; }
  std::vector<float> normals(std::int64_t n, double scale = 1.0);
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

// Uniform in [0, vocab_size).
std::vector<std::int32_t> random_tokens(Random& random, std::int64_t n, std::int64_t vocab_size);

}  // namespace longhaul::test
