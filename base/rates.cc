#include "base/rates.h"

#include <algorithm>

namespace longhaul {

double Rates::flops(DType dtype) const {
  const bool is_widened = dtype == DType::kF32 || dtype == DType::kF8E4m3;
  return is_widened ? float_flops : std::max(float_flops, pair_flops);
}

Rates better_of(const Rates& a, const Rates& b) {
  return {.float_flops = std::max(a.float_flops, b.float_flops),
          .pair_flops = std::max(a.pair_flops, b.pair_flops),
          .int8_ops = std::max(a.int8_ops, b.int8_ops),
          .read_bytes = std::max(a.read_bytes, b.read_bytes)};
}

Rates sum_of(const Rates& a, const Rates& b) {
  return {.float_flops = a.float_flops + b.float_flops,
          .pair_flops = a.pair_flops + b.pair_flops,
          .int8_ops = a.int8_ops + b.int8_ops,
          .read_bytes = a.read_bytes + b.read_bytes};
}

}  // namespace longhaul
