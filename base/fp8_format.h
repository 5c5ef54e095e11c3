// How matrices of 8-bit floats are cut: which weights share a scale. kernels/fp8_weights.h makes
// and reads them; planning counts with these.
#pragma once
#include <cstdint>

#include "base/ids.h"

namespace longhaul {

// Inputs of a block are a multiple of this, so that vectors of every instruction set end with it.
inline constexpr std::int64_t kFp8Chunk = 64;
// Inputs of a row that share a scale where inputs are quantised.
inline constexpr std::int64_t kFp8InputGroup = 128;

// What enters products with such weights: floats (on GPUs rounded to bf16), or E4M3 codes with a
// scale in f32 for each row and kFp8InputGroup inputs, counted from the beginning of a block. The
// latter is how DeepSeek-V3 was trained and Qwen3-*-FP8 is published ("activation_scheme":
// "dynamic").
enum class Fp8Inputs : std::uint8_t { kAsTheyAre, kQuantised };

// weight [output, input] = scale [output / block_out, input / block_in] * the value of its E4M3
// code (base/dtype.h), scales in f32. Blocks of 128 x 128 are those of DeepSeek-V3
// [arXiv:2412.19437 section 3.3.2]; a scale for each output is block_out = 1 and block_in = all
// inputs. Only products with blocks of 128 x 128 round their inputs.
struct Fp8Layout {
  std::int64_t block_out = 128;
  std::int64_t block_in = 128;  // a multiple of kFp8Chunk
  Fp8Inputs inputs = Fp8Inputs::kAsTheyAre;
  bool operator==(const Fp8Layout&) const = default;
};

// On GPUs: scales from row to row of blocks; of blocks of 128 x 128 as cuBLASLt wants them.
constexpr std::int64_t fp8_scale_stride(std::int64_t n_in, const Fp8Layout& layout = {}) {
  const std::int64_t n_blocks = ceil_div(n_in, layout.block_in);
  return layout.block_out == 128 && layout.block_in == 128 ? ceil_div(n_blocks, 4) * 4 : n_blocks;
}

// Codes and scales.
constexpr std::int64_t fp8_matrix_bytes(std::int64_t n_out, std::int64_t n_in,
                                        const Fp8Layout& layout = {}) {
  constexpr std::int64_t kScaleBytes = 4;
  return n_out * n_in +
         ceil_div(n_out, layout.block_out) * ceil_div(n_in, layout.block_in) * kScaleBytes;
}

}  // namespace longhaul
