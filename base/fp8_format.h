// How matrices of 8-bit floats are cut: which weights share a scale. kernels/fp8_weights.h makes
// and reads them; planning counts with these.
#pragma once
#include <cstdint>

#include "base/ids.h"

namespace longhaul {

// Inputs of a block are a multiple of this, so that vectors of every instruction set end with it.
inline constexpr std::int64_t kFp8Chunk = 64;

// weight [output, input] = scale [output / block_out, input / block_in] * the value of its E4M3
// code (base/dtype.h), scales in f32. Blocks of 128 x 128 are those of DeepSeek-V3
// [arXiv:2412.19437 section 3.3.2]; a scale for each output is block_out = 1 and block_in = all
// inputs.
struct Fp8Layout {
  std::int64_t block_out = 128;
  std::int64_t block_in = 128;  // a multiple of kFp8Chunk
  bool operator==(const Fp8Layout&) const = default;
};

// Codes and scales.
constexpr std::int64_t fp8_matrix_bytes(std::int64_t n_out, std::int64_t n_in,
                                        const Fp8Layout& layout = {}) {
  constexpr std::int64_t kScaleBytes = 4;
  return n_out * n_in +
         ceil_div(n_out, layout.block_out) * ceil_div(n_in, layout.block_in) * kScaleBytes;
}

}  // namespace longhaul
