// Matrix products with fp8 weights on one thread. See kernels/cpu/isa/kernels.h; the layout of
// weights is in kernels/fp8_weights.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

// Inputs here count from the beginning of the first block of inputs that share a scale: `n_skipped`
// of them, before the first input of a slice, belong to other ranks and meet zeros of x.

// Rows of x in the order in which codes are widened, with zeros before the first input and behind
// the last one.
struct Fp8XTask {
  const float* x;  // [n_rows, n_in - n_skipped]
  std::int64_t n_rows;
  std::int64_t n_skipped;
  std::int64_t n_in;
  float* out;  // [n_rows, n_in up to a multiple of kFp8Chunk]
};

// out[:, output_begin .. output_end): reads the weights once, without packing them.
struct Fp8LinearTask {
  const float* x;  // [n_rows, x_stride], as pack_fp8_x left it
  std::int64_t x_stride;
  std::int64_t n_rows;
  const std::uint8_t* codes;  // [n_out, code_stride]
  std::int64_t code_stride;
  std::int64_t n_in;
  const float* scales;  // [blocks of outputs, scale_stride]
  std::int64_t scale_stride;
  std::int64_t block_out;
  std::int64_t block_in;
  std::int64_t first_output;  // in the first block
  const float* bias;          // may be null
  float* out;                 // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t output_begin;
  std::int64_t output_end;
};

// Inputs of one output as floats, in the order of Fp8XTask.
struct Fp8WidenTask {
  const std::uint8_t* codes;  // [n_in]
  std::int64_t n_in;
  const float* scales;  // of the blocks
  std::int64_t block_in;
  float* out;  // [n_in up to a multiple of kFp8Chunk]; zeros behind the last input
};

}  // namespace longhaul::cpu
