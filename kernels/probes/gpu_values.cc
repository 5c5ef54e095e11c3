#include "kernels/probes/gpu_values.h"

#include <algorithm>

#include "kernels/probes/random_values.h"

namespace longhaul {
namespace {

constexpr std::int64_t kDifferent = std::int64_t{8} << 20;

}  // namespace

void fill_random(cuda::Stream& stream, std::byte* to, DType dtype, std::int64_t n) {
  const auto values = random_values(dtype, std::min(n, kDifferent), /*deviation=*/1.0F, /*seed=*/1);
  const auto n_there = static_cast<std::size_t>(values.size());
  const std::size_t n_bytes = static_cast<std::size_t>(n) * size_of(dtype);
  for (std::size_t at = 0; at < n_bytes; at += n_there) {
    cuda::copy_to_device(stream, to + at, {values.data(), std::min(n_there, n_bytes - at)});
  }
}

}  // namespace longhaul
