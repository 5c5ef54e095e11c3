#include "tools/bench/bound.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul::bench {

std::string_view name_of(Limit limit) {
  switch (limit) {
    case Limit::kArithmetic:
      return "arithmetic";
    case Limit::kMemory:
      return "memory";
  }
  return "unknown";
}

Bound bound_of(const Work& work, const Rates& rates, DType dtype) {
  return bound_of(std::span(&work, 1), rates, dtype);
}

Bound bound_of(std::span<const Work> steps, const Rates& rates, DType dtype) {
  require(rates.flops(dtype) > 0 && rates.read_bytes > 0, "bound_of: rates must be positive");
  double arithmetic = 0, memory = 0;
  for (const Work& work : steps) {
    double computing = work.flops / rates.flops(dtype);
    if (work.int8_ops > 0) computing += work.int8_ops / rates.int8_ops;
    const double reading = work.bytes / rates.read_bytes;
    (computing >= reading ? arithmetic : memory) += std::max(computing, reading);
  }
  return {.seconds = arithmetic + memory,
          .limit = arithmetic >= memory ? Limit::kArithmetic : Limit::kMemory};
}

std::string describe(const Rates& rates) {
  return fmt::format(
      "f32 {:.1f} GFLOP/s, bf16 {:.1f} GFLOP/s, int8 {:.1f} Gop/s, memory {:.1f} GB/s",
      rates.float_flops / 1e9, rates.flops(DType::kBf16) / 1e9, rates.int8_ops / 1e9,
      rates.read_bytes / 1e9);
}

}  // namespace longhaul::bench
