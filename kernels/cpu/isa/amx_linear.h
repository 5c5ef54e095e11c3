// Products of bf16 with bf16 weights by AMX, on one thread: out^T = W x^T, so that a left operand
// is 16 rows of weights as they lie in memory, and x, which is smaller, is laid out as right
// operands once for all. See kernels/cpu/isa/kernels.h; only instruction sets with AMX have them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

// Elements along the sum that an instruction takes: a step.
inline constexpr std::int64_t kAmxStep = 32;
// Rows of x, and outputs, of an instruction.
inline constexpr std::int64_t kAmxLinearUnit = 16;

// amx_linear: steps that it takes at a time, rows of a task, and outputs whose sums it keeps.
// Measured with 48 KiB of L1 and 2 MiB of L2: weights of 32 outputs stay in the first cache
// (33 KiB); x (512 KiB) and the sums (1 MiB) in the second.
inline constexpr std::int64_t kAmxChunkSteps = 16;
inline constexpr std::int64_t kAmxTaskRows = 512;
inline constexpr std::int64_t kAmxBlockOutputs = 512;

// x [n_rows, n_in] to bf16, of rows [row_begin, row_end): multiples of kAmxLinearUnit, or the end.
struct AmxXTask {
  const float* x;
  std::int64_t n_rows;
  std::int64_t n_in;
  std::int64_t chunk_steps;
  // [n_steps / chunk_steps rounded up, n_rows / kAmxLinearUnit rounded up, chunk_steps, 16 pairs
  // along the sum, 16 rows, 2]; the last chunk has as many steps as are left. Zeros beyond rows and
  // n_in.
  std::uint16_t* out;
  std::int64_t row_begin;
  std::int64_t row_end;
};

// out[row_begin .. row_end, output_begin .. output_end).
struct AmxLinearTask {
  const std::uint16_t* x;       // as amx_pack_x left it; for amx_few_rows all steps are one chunk
  std::int64_t n_rows;          // of x
  const std::uint16_t* weight;  // [n_out, n_in]
  std::int64_t weight_stride;
  std::int64_t n_in;
  const float* bias;  // may be null
  float* out;         // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t row_begin;  // a multiple of kAmxLinearUnit
  std::int64_t row_end;    // amx_linear: at most kAmxTaskRows later
  std::int64_t output_begin;
  std::int64_t output_end;
  std::byte* scratch;  // amx_linear_scratch_bytes; amx_few_rows needs none
};

}  // namespace longhaul::cpu
