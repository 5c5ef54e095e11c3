// Queries as the left side of the product with keys. See kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

void load_query(const AttentionTask& task, const Tile& tile, std::int64_t row, const float* q) {
  const std::int64_t dim = task.head_dim;
  float* to = tile.q + row * q_stride(task);
  if (holds_codes(task.k_type)) {
    float padded[kMostCodes] = {};
    __builtin_memcpy(padded, q, static_cast<std::size_t>(dim) * sizeof(float));
    Vec largest{};
    Vec sums{};
    for (std::int64_t d = 0; d < dim; d += kWidth) {
      const Vec x = load(padded + d);
      largest = max(largest, max(x, -x));
      sums += x;
    }
    const float sum = sum_of(sums);
    const LeftUnit unit = left_unit(max_of(largest));
    tile.q_sums[row] = sum;
    tile.q_units[row] = unit.unit + 0.0F * sum;  // not a number where an element is none
    pack_left(padded, round_up(dim, 16), unit.inverse, to);
  } else if (multiplies_pairs(task, task.k_type)) {
    pack_bf16_pairs(q, dim, to);
  } else {
    __builtin_memcpy(to, q, static_cast<std::size_t>(dim) * sizeof(float));
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
