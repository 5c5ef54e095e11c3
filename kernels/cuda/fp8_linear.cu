// linear with fp8 weights. Codes become bf16, exactly, on their way into tensor cores; the sums of
// a chunk of inputs, which lies in one block, are scaled in float32. What enters a product is
// rounded to bf16, as beside weights of bf16; or, where the weights say so, to E4M3 with a scale
// for each row and 128 inputs: such products are cuBLASLt's where it has them (fp8_blocks.cu).

#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/fp8_linear.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/fp8_weights.h"

namespace longhaul::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kChunk = static_cast<int>(kFp8Chunk);
constexpr int kLaneCodes = kChunk / 4;  // of a chunk, those that one lane of four has
constexpr int kTileOutputs = 16;        // of a warp
constexpr int kTileRows = 8;
static_assert(kLaneCodes == 16, "16 bytes are read at once");

// --- rows ---------------------------------------------------------------------------------------

struct Inputs {
  const float* x;  // [n_rows, n_in]
  std::int64_t n_in;
  std::int64_t first_input;  // of the block where input 0 is
  bool operator==(const Inputs&) const = default;
  __device__ float at(std::int64_t row, std::int64_t i) const {
    const std::int64_t input = i - first_input;
    return input >= 0 && input < n_in ? x[row * n_in + input] : 0.0F;
  }
};

// A thread for each two values of a row.
__global__ void round_rows_kernel(Inputs inputs, Fp8Rows rows, std::uint32_t* out) {
  const std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (2 * pair >= rows.n_rows * rows.width) return;
  const std::int64_t row = 2 * pair / rows.width;
  const std::int64_t i = 2 * pair % rows.width;
  out[pair] = bf16_pair(inputs.at(row, i), inputs.at(row, i + 1));
}

// A warp for each row and block of kFp8InputGroup inputs: kernels/fp8_weights.h's
// quantise_fp8_inputs, to the bit.
__global__ void quantise_rows_kernel(Inputs inputs, Fp8Rows rows, std::uint8_t* codes,
                                     float* scales) {
  const std::int64_t n_groups = rows.n_groups();
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (number >= rows.n_rows * n_groups) return;
  const std::int64_t row = number / n_groups;
  const std::int64_t group = number % n_groups;
  const std::int64_t begin = group * kFp8InputGroup;
  const std::int64_t end =
      begin + kFp8InputGroup < rows.width ? begin + kFp8InputGroup : rows.width;
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  float largest = 0.0F;
  bool finite = true;
  for (std::int64_t i = begin + lane; i < end; i += kWarp) {
    const float value = inputs.at(row, i);
    largest = fabsf(value) > largest ? fabsf(value) : largest;
    finite = finite && value - value == 0.0F;
  }
  largest = reduce_warp(largest, Larger());
  finite = reduce_warp(finite ? 1 : 0, Smaller()) == 1;
  const float scale = largest / kLargestE4m3;
  for (std::int64_t i = begin + lane; i < end; i += kWarp) {
    const bool has_code = finite && scale != 0.0F;
    codes[row * rows.width + i] =
        static_cast<std::uint8_t>(has_code ? e4m3_of_float(inputs.at(row, i) / scale) : 0U);
  }
  if (lane == 0) scales[rows.scale_at(row, group)] = finite ? scale : __uint_as_float(0x7fc00000U);
}

// --- products -----------------------------------------------------------------------------------

struct Fp8Work {
  Fp8Rows rows;
  const std::uint8_t* codes;  // of the weight, from the beginning of the first block on
  std::int64_t code_stride;
  std::int64_t n_inputs;  // from there; rows are no longer
  bool is_aligned;        // codes of every chunk, to 16 bytes
  const float* scales;
  std::int64_t scale_stride;
  std::int64_t block_out;
  std::int64_t block_in;
  std::int64_t first_output;  // of the block where output 0 is
  std::int64_t n_out;
  std::int64_t first_row;
  const float* bias;
  float* out;  // [n_rows, n_out]
  bool accumulates;
  bool operator==(const Fp8Work&) const = default;
};

// kLaneCodes codes of an output; zeros where there are none.
__device__ __forceinline__ Words4 load_codes(const Fp8Work& work, std::int64_t output,
                                             std::int64_t input) {
  Words4 out = {};
  if (output >= work.n_out) return out;
  const std::uint8_t* from = work.codes + output * work.code_stride + input;
  if (work.is_aligned && input + kLaneCodes <= work.n_inputs) return load_once_16(from);
  for (int i = 0; i < kLaneCodes; ++i) {
    if (input + i < work.n_inputs)
      out.at[i / 4] |= static_cast<std::uint32_t>(from[i]) << static_cast<unsigned>(8 * (i % 4));
  }
  return out;
}

// Inputs [input, input + 4) of a row, the right side of a product.
template <bool kCodes>
__device__ __forceinline__ void load_inputs(const Fp8Work& work, std::int64_t row,
                                            std::int64_t input, std::uint32_t (&b)[2]) {
  b[0] = b[1] = 0;
  if (row >= work.rows.n_rows) return;
  const std::int64_t at = row * work.rows.width + input;
  if constexpr (kCodes) {
    const std::uint32_t four = *reinterpret_cast<const std::uint32_t*>(work.rows.codes + at);
    b[0] = bf16_of_e4m3(four, 0);
    b[1] = bf16_of_e4m3(four, 2);
  } else {
    const auto* pairs = reinterpret_cast<const std::uint32_t*>(work.rows.halves + at);
    b[0] = pairs[0];
    b[1] = pairs[1];
  }
}

__device__ __forceinline__ float weight_scale(const Fp8Work& work, std::int64_t output,
                                              std::int64_t input) {
  if (output >= work.n_out) return 0.0F;
  return work.scales[(work.first_output + output) / work.block_out * work.scale_stride +
                     input / work.block_in];
}

// Adds a chunk's scaled products with outputs g and g + 8 from `output` on to the sums: of tile i,
// sums[i][e] of output g and row 2t + e, sums[i][2 + e] of output g + 8. The order of a chunk's
// inputs is free if both sides have the same: lane t has 16 neighbours, four for each product.
template <int kTiles, bool kCodes>
__device__ __forceinline__ void add_chunk(const Fp8Work& work, std::int64_t output,
                                          std::int64_t first_row, std::int64_t chunk,
                                          float (&sums)[kTiles][4]) {
  const std::int64_t g = threadIdx.x % kWarp / 4;
  const std::int64_t t = threadIdx.x % 4;
  const std::int64_t input = chunk * kChunk + t * kLaneCodes;
  const Words4 low = load_codes(work, output + g, input);
  const Words4 high = load_codes(work, output + g + 8, input);
  float products[kTiles][4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t left[4] = {bf16_of_e4m3(low.at[i], 0), bf16_of_e4m3(high.at[i], 0),
                                   bf16_of_e4m3(low.at[i], 2), bf16_of_e4m3(high.at[i], 2)};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      std::uint32_t right[2];
      load_inputs<kCodes>(work, first_row + kTileRows * tile + g, input + 4 * i, right);
      mma_bf16(products[tile], left, right);
    }
  }
  const float scales[2] = {weight_scale(work, output + g, chunk * kChunk),
                           weight_scale(work, output + g + 8, chunk * kChunk)};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const std::int64_t row = first_row + kTileRows * tile + 2 * t + e;
      float of_row = 1.0F;
      if constexpr (kCodes) {
        if (row < work.rows.n_rows)
          of_row = work.rows.scales[work.rows.scale_at(row, chunk * kChunk / kFp8InputGroup)];
      }
      sums[tile][e] += products[tile][e] * (scales[0] * of_row);
      sums[tile][2 + e] += products[tile][2 + e] * (scales[1] * of_row);
    }
  }
}

__device__ __forceinline__ void store(const Fp8Work& work, std::int64_t output, std::int64_t row,
                                      float sum) {
  if (output >= work.n_out || row >= work.rows.n_rows) return;
  float* to = work.out + row * work.n_out + output;
  if (work.bias != nullptr) sum += work.bias[output];
  *to = work.accumulates ? *to + sum : sum;
}

// grid.x counts outputs, grid.y kTiles * 8 rows. Of few rows the warps of a thread block share 16
// outputs and take their chunks in turns; their sums are added in the warps' order. Shared, then:
// [kWarps, kTiles, 4, 32] floats.
template <int kTiles, bool kFew, bool kCodes>
__global__ void fp8_kernel(Fp8Work work) {
  const auto warp = static_cast<std::int64_t>(threadIdx.x / kWarp);
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const std::int64_t tile_of_outputs =
      kFew ? std::int64_t{blockIdx.x} : std::int64_t{blockIdx.x} * kWarps + warp;
  const std::int64_t output = tile_of_outputs * kTileOutputs;
  const std::int64_t first_row = work.first_row + std::int64_t{blockIdx.y} * kTiles * kTileRows;
  float sums[kTiles][4] = {};
  const std::int64_t n_chunks = work.rows.width / kChunk;
  for (std::int64_t chunk = kFew ? warp : 0; chunk < n_chunks; chunk += kFew ? kWarps : 1)
    add_chunk<kTiles, kCodes>(work, output, first_row, chunk, sums);
  auto* shared = reinterpret_cast<float*>(shared_memory());
  if constexpr (kFew) {
    for (int i = 0; i < 4 * kTiles; ++i)
      shared[(warp * 4 * kTiles + i) * kWarp + lane] = sums[i / 4][i % 4];
    __syncthreads();  // all warps' sums are written before the first warp reads them
    if (warp != 0) return;
  }
  for (int i = 0; i < 4 * kTiles; ++i) {
    float sum = sums[i / 4][i % 4];
    if constexpr (kFew) {
      for (int w = 1; w < kWarps; ++w) sum += shared[(w * 4 * kTiles + i) * kWarp + lane];
    }
    store(work, output + lane / 4 + i % 4 / 2 * 8,
          first_row + i / 4 * kTileRows + 2 * (lane % 4) + i % 2, sum);
  }
}

template <int kTiles, bool kFew>
void launch_products(Stream& stream, const Fp8Work& work) {
  constexpr std::int64_t kOutputs = kFew ? kTileOutputs : kWarps * kTileOutputs;
  const Grid grid = {
      .x = ceil_div(work.n_out, kOutputs),
      .y = ceil_div(work.rows.n_rows - work.first_row, std::int64_t{kTiles * kTileRows}),
      .block = kThreads,
      .shared_bytes = kFew ? kWarps * kTiles * 4 * kWarp * sizeof(float) : 0};
  if (work.rows.codes != nullptr)
    launch(stream, "linear: fp8", fp8_kernel<kTiles, kFew, true>, grid, work);
  else
    launch(stream, "linear: fp8", fp8_kernel<kTiles, kFew, false>, grid, work);
}

// Rows as the weight takes them.
Fp8Rows make_rows(Stream& stream, const LinearArgs& args) {
  const WeightView& w = args.weight;
  Fp8Rows rows = {.n_rows = args.x.dim(0),
                  .width = ceil_div(w.first_input + w.n_in, kFp8Chunk) * kFp8Chunk,
                  .halves = nullptr,
                  .codes = nullptr,
                  .scales = nullptr};
  const Inputs inputs = {args.x.data(), w.n_in, w.first_input};
  const std::int64_t n_values = rows.n_rows * rows.width;
  if (w.fp8.inputs == Fp8Inputs::kAsTheyAre) {
    auto* out =
        reinterpret_cast<std::uint32_t*>(stream.scratch(static_cast<std::size_t>(2 * n_values)));
    launch(stream, "linear: round", round_rows_kernel,
           {.x = ceil_div(n_values / 2, kThreads), .block = kThreads}, inputs, rows, out);
    rows.halves = reinterpret_cast<const std::uint16_t*>(out);
    return rows;
  }
  const std::int64_t n_scales = rows.n_rows * rows.n_groups();
  const std::int64_t scale_bytes = ceil_div(n_scales, 4) * 4 * std::int64_t{sizeof(float)};
  std::byte* scratch = stream.scratch(static_cast<std::size_t>(scale_bytes + n_values));
  auto* scales = reinterpret_cast<float*>(scratch);
  auto* codes = reinterpret_cast<std::uint8_t*>(scratch + scale_bytes);
  launch(stream, "linear: quantise", quantise_rows_kernel,
         {.x = ceil_div(n_scales, kWarps), .block = kThreads}, inputs, rows, codes, scales);
  rows.codes = codes;
  rows.scales = scales;
  return rows;
}

constexpr std::int64_t kFewRows = 32;  // that are bound by memory

}  // namespace

void fp8_linear(Stream& stream, const LinearArgs& args) {
  const WeightView& w = args.weight;
  Fp8Work work = {.rows = make_rows(stream, args),
                  .codes = static_cast<const std::uint8_t*>(w.data) - w.first_input,
                  .code_stride = w.stride(),
                  .n_inputs = w.first_input + w.n_in,
                  .is_aligned = false,
                  .scales = w.block_scales,
                  .scale_stride = w.scale_stride,
                  .block_out = w.fp8.block_out,
                  .block_in = w.fp8.block_in,
                  .first_output = w.first_lane,
                  .n_out = w.n_out,
                  .first_row = 0,
                  .bias = args.bias.empty() ? nullptr : args.bias.data(),
                  .out = args.out.data(),
                  .accumulates = args.output == LinearOutput::kAccumulate};
  work.is_aligned =
      reinterpret_cast<std::uintptr_t>(work.codes) % 16 == 0 && work.code_stride % 16 == 0;
  if (work.rows.n_rows > kFewRows && work.rows.codes != nullptr && work.bias == nullptr)
    work.first_row = multiply_fp8_blocks(stream, work.rows, w, work.out, args.output);
  const std::int64_t n_left = work.rows.n_rows - work.first_row;
  if (n_left == 0) return;
  if (n_left <= kTileRows) return launch_products<1, true>(stream, work);
  if (n_left <= kFewRows) return launch_products<kFewRows / kTileRows, true>(stream, work);
  launch_products<8, false>(stream, work);
}

}  // namespace longhaul::cuda
