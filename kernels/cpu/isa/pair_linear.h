// Products of bf16 with bf16 weights by VDPBF16PS, which takes pairs along the sum on both sides;
// on one thread. See kernels/cpu/isa/kernels.h; only instruction sets with VDPBF16PS have them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

// Outputs and rows that one step of pair_linear works on; its tasks begin at multiples of the
// outputs.
inline constexpr std::int64_t kPairOutputs = 128;
inline constexpr std::int64_t kPairTaskRows = 512;
// Elements of x and of the weights that it takes at a time.
inline constexpr std::int64_t kPairChunk = 512;
// Elements of x's chunks are rounded up to this.
inline constexpr std::int64_t kPairUnit = 32;

// Rows of x to bf16, cut into chunks of elements, so that the rows that are multiplied together lie
// together. `chunk` is a multiple of kPairUnit.
struct PairXTask {
  const float* x;  // [n_rows, n_in]
  std::int64_t n_rows;
  std::int64_t n_in;
  std::int64_t chunk;
  std::uint16_t* out;  // [n_in / chunk rounded up, n_rows, chunk]; zeros beyond n_in
  std::int64_t row_begin;
  std::int64_t row_end;
};

// out[row_begin .. row_end, output_begin .. output_end).
struct PairLinearTask {
  const std::uint16_t* x;       // as pack_pair_x left it
  std::int64_t n_rows;          // of x
  std::int64_t chunk;           // of x: kPairChunk in pair_linear, kPairUnit in pair_few_rows
  const std::uint16_t* weight;  // [n_out, n_in]
  std::int64_t weight_stride;
  std::int64_t n_in;
  const float* bias;  // may be null
  float* out;         // [n_rows, out_stride]
  std::int64_t out_stride;
  bool accumulate;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t output_begin;
  std::int64_t output_end;
  std::byte* scratch;  // kPairScratchBytes, aligned to 64 bytes
};

// Packed weights and sums of a step.
inline constexpr std::size_t kPairScratchBytes =
    static_cast<std::size_t>(kPairOutputs * kPairChunk / 2 + kPairTaskRows * kPairOutputs) * 4;

}  // namespace longhaul::cpu
