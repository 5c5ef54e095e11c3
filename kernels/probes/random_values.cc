#include "kernels/probes/random_values.h"

#include <cmath>

#include "base/error.h"
#include "base/split_mix.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

// Calls set(i, u) for i in [0, n) with u uniform, mean 0, deviation 1.
template <typename Set>
void draw(std::int64_t n, std::uint64_t seed, const Set& set) {
  const float bound = std::sqrt(3.0F) * 0x1p-31F;
  const std::uint64_t stream = split_mix(seed);
  parallel_rows(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto bits =
          static_cast<std::int32_t>(split_mix(stream + static_cast<std::uint64_t>(i)) >> 32);
      set(i, bound * static_cast<float>(bits));
    }
  });
}

}  // namespace

void fill_random(std::span<float> out, float deviation, std::uint64_t seed) {
  draw(static_cast<std::int64_t>(out.size()), seed,
       [&](std::int64_t i, float u) { out[static_cast<std::size_t>(i)] = deviation * u; });
}

Tensor<std::byte, 1> random_values(DType dtype, std::int64_t n, float deviation,
                                   std::uint64_t seed) {
  require(dtype == DType::kF32 || dtype == DType::kBf16, "random values are f32 or bf16");
  Tensor<std::byte, 1> out({n * static_cast<std::int64_t>(size_of(dtype))});
  if (dtype == DType::kF32) {
    fill_random({reinterpret_cast<float*>(out.data()), static_cast<std::size_t>(n)}, deviation,
                seed);
    return out;
  }
  auto* halves = reinterpret_cast<BFloat16*>(out.data());
  draw(n, seed, [&](std::int64_t i, float u) { halves[i] = to_bf16(deviation * u); });
  return out;
}

}  // namespace longhaul
