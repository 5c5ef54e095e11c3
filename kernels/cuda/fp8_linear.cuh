// linear with fp8 weights on GPUs: what its two ways, tensor cores (fp8_linear.cu) and cuBLASLt's
// block-scaled products (fp8_blocks.cu), have in common.
#pragma once
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/linear.h"

namespace longhaul::cuda {

// What the rows of x become, in scratch memory. Inputs are counted from the beginning of the
// weight's first block; those before input 0, and beyond the last one, are zeros.
struct Fp8Rows {
  std::int64_t n_rows;
  std::int64_t width;  // inputs of a row: whole chunks of kFp8Chunk
  // Of one of the two kinds, bf16 or codes [n_rows, width]:
  const std::uint16_t* halves;
  const std::uint8_t* codes;
  const float* scales;  // of codes: as many as there are groups of kFp8InputGroup inputs times rows
  bool operator==(const Fp8Rows&) const = default;

  // cuBLASLt wants scales group by group, of a multiple of 4 rows; those of the last 1 to 3 rows
  // lie behind them.
  LONGHAUL_HOST_DEVICE std::int64_t n_scaled_together() const { return n_rows / 4 * 4; }
  LONGHAUL_HOST_DEVICE std::int64_t n_groups() const {
    return (width + kFp8InputGroup - 1) / kFp8InputGroup;
  }
  LONGHAUL_HOST_DEVICE std::int64_t scale_at(std::int64_t row, std::int64_t group) const {
    const std::int64_t together = n_scaled_together();
    if (row < together) return group * together + row;
    return n_groups() * together + group * (n_rows - together) + row - together;
  }
};

// Of fp8_linear.cu: linear() with fp8 weights.
void fp8_linear(Stream& stream, const LinearArgs& args);

// Of fp8_blocks.cu: out [n, n_out] = the first n rows, which are codes, times the weight, or +=
// that; returns n, a multiple of 4, or 0 where this matrix, this chip or this version of cuBLASLt
// has no such product.
std::int64_t multiply_fp8_blocks(Stream& stream, const Fp8Rows& rows, const WeightView& weight,
                                 float* out, LinearOutput output);

}  // namespace longhaul::cuda
