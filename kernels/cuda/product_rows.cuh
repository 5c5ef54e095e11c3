// The rows of products, made in the type that these take of what comes right before them. A source
// says what that is: row() is called by all threads of a thread block and gives the values of a
// row by number.
#pragma once
#include <algorithm>

#include "kernels/cuda/integer_linear.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/cuda/softmax_state.cuh"

namespace longhaul::cuda {

// As they are.
struct PlainRows {
  const float* x;  // [n_rows, stride]
  std::int64_t stride;
  bool operator==(const PlainRows&) const = default;

  struct Row {
    const float* x;
    __device__ float at(std::int64_t i) const { return x[i]; }
  };
  __device__ Row row(std::int64_t row, float*) const { return {x + row * stride}; }
};

// After rms_norm.
struct NormedRows {
  const float* x;
  std::int64_t stride;
  const float* weight;  // [width]
  std::int64_t width;
  float eps;
  bool operator==(const NormedRows&) const = default;

  struct Row {
    const float* x;
    const float* weight;
    float factor;
    __device__ float at(std::int64_t i) const { return x[i] * factor * weight[i]; }
  };
  __device__ Row row(std::int64_t row, float* shared) const {
    const float* at = x + row * stride;
    return {at, weight,
            width <= kMostNormOfAWarp ? norm_factor_of_warp(at, width, eps)
                                      : norm_factor_of_block(at, width, eps, shared)};
  }
};

// After swiglu.
struct ActivatedRows {
  const float* gate;
  std::int64_t gate_stride;
  const float* up;
  std::int64_t up_stride;
  bool operator==(const ActivatedRows&) const = default;

  struct Row {
    const float* gate;
    const float* up;
    __device__ float at(std::int64_t i) const { return activated(gate[i], up[i]); }
  };
  __device__ Row row(std::int64_t row, float*) const {
    return {gate + row * gate_stride, up + row * up_stride};
  }
};

// After finish_attention.
struct AttendedRows {
  StateRef state;
  const float* sink_logits;  // [n_heads], or null
  std::int64_t head_dim;
  bool operator==(const AttendedRows&) const = default;

  struct Row {
    const AttendedRows& rows;
    std::int64_t token;
    __device__ float factor(int head) const {
      const StateRef& of = rows.state;
      const float sink = rows.sink_logits == nullptr ? minus_infinity() : rows.sink_logits[head];
      return finish_factor(*of.m_at(token, head), *of.l_at(token, head), sink);
    }
    __device__ float at(std::int64_t i) const {
      const int head = static_cast<int>(i) / static_cast<int>(rows.head_dim);
      const int dim = static_cast<int>(i) % static_cast<int>(rows.head_dim);
      return rows.state.o_at(token, head)[dim] * factor(head);
    }
  };
  __device__ Row row(std::int64_t row, float*) const { return {*this, row}; }
};

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / kWarp;

// Thread blocks that share a row of so many parts, one for each to take at a time: more where there
// are few rows. What is found for the whole row each finds by itself.
inline std::int64_t n_blocks_of_row(std::int64_t n_rows, std::int64_t n_parts) {
  constexpr std::int64_t kEnough = 256;  // thread blocks for any GPU
  return std::clamp<std::int64_t>(kEnough / n_rows, 1, n_parts);
}

inline Grid grid_of_rows(std::int64_t n_rows, std::int64_t n_blocks) {
  return {.x = n_rows * n_blocks, .block = kRowThreads, .shared_bytes = kRowWarps * sizeof(float)};
}

// --- integers -----------------------------------------------------------------------------------

// Values of a step, zeros where the row has ended.
struct StepValues {
  float at[4];
};
template <typename Row>
__device__ __forceinline__ StepValues step_of(const Row& row, std::int64_t first,
                                              std::int64_t n_in) {
  StepValues out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.at[i] = first + i < n_in ? row.at(first + i) : 0.0F;
  return out;
}
// Of one head, as a rule, whose factor is looked up once.
__device__ __forceinline__ StepValues step_of(const AttendedRows::Row& row, std::int64_t first,
                                              std::int64_t n_in) {
  const auto head_dim = static_cast<int>(row.rows.head_dim);
  if (head_dim % 4 != 0 || first + 4 > n_in) return step_of<AttendedRows::Row>(row, first, n_in);
  const int head = static_cast<int>(first) / head_dim;
  const float* o = row.rows.state.o_at(row.token, head) + static_cast<int>(first) % head_dim;
  const float factor = row.factor(head);
  StepValues out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.at[i] = o[i] * factor;
  return out;
}

// One group of a row, by one warp, which keeps the values of kKept steps for each lane between
// looking for the largest and rounding.
template <typename Row>
__device__ void quantise_group(const Int8Rows& rows, const Row& values, std::int64_t row,
                               std::int64_t group) {
  constexpr std::uint32_t kInfinityBits = 0x7f800000U;
  constexpr int kKept = 4;
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto n_steps = static_cast<int>(rows.group / kInt8Step);
  const auto step_at = [&](int s) {
    return step_of(values, group * rows.group + s * kInt8Step, rows.n_in);
  };
  StepValues kept[kKept] = {};
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (lane + i * kWarp < n_steps) kept[i] = step_at(lane + i * kWarp);
  }
  std::uint32_t bits = 0;  // of the largest magnitude; infinities and NaNs are larger than all
  const auto look_at = [&](const StepValues& step) {
#pragma unroll
    for (const float value : step.at) bits = Larger()(__float_as_uint(value) & 0x7fffffffU, bits);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) look_at(kept[i]);
  for (int s = lane + kKept * kWarp; s < n_steps; s += kWarp) look_at(step_at(s));
  bits = reduce_warp(bits, Larger());
  const float largest = __uint_as_float(bits);
  const bool is_finite = bits < kInfinityBits;
  const bool is_zero = !is_finite || largest < 1e-35F;
  const float inverse = is_zero ? 0.0F : 127.0F / largest;
  std::uint32_t* codes = rows.codes + (row * rows.n_groups + group) * n_steps;
  std::int32_t sum = 0;
  const auto round = [&](const StepValues& step, int s) {
    std::uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto code =
          is_zero ? 0 : static_cast<std::int32_t>(rintf(rounded_product(step.at[i], inverse)));
      sum += code;
      word |= (static_cast<std::uint32_t>(code) & 0xffU) << static_cast<unsigned>(8 * i);
    }
    const int step_of_part = s % kPartSteps;
    codes[rows.interleaves ? s - step_of_part + word_of_step(step_of_part) : s] = word;
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (lane + i * kWarp < n_steps) round(kept[i], lane + i * kWarp);
  }
  for (int s = lane + kKept * kWarp; s < n_steps; s += kWarp) round(step_at(s), s);
  sum = reduce_warp(sum, Add());
  if (lane != 0) return;
  const float scale = is_zero ? 0.0F : largest / 127.0F;
  rows.ranges[group * rows.range_rows + row] = {
      is_finite ? scale : __uint_as_float(0x7fc00000U),
      (rows.group == kInt8Group ? kSumBits : 0) - 128 * sum};
}

// grid.x: n_blocks for each row, whose warps take groups in turns. Shared: a float for each warp.
template <typename Source>
__global__ void quantise_kernel(Int8Rows rows, Source source, std::int64_t n_blocks) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) / n_blocks;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) % n_blocks * kRowWarps +
                             static_cast<std::int64_t>(threadIdx.x / kWarp);
  const auto values = source.row(row, reinterpret_cast<float*>(shared_memory()));
  for (std::int64_t group = first; group < rows.n_groups; group += n_blocks * kRowWarps)
    quantise_group(rows, values, row, group);
}

template <typename Source>
void quantise(Stream& stream, const Int8Rows& rows, const Source& source) {
  const std::int64_t n_blocks = n_blocks_of_row(rows.n_rows, ceil_div(rows.n_groups, kRowWarps));
  launch(stream, "linear: quantise", quantise_kernel<Source>, grid_of_rows(rows.n_rows, n_blocks),
         rows, source, n_blocks);
}

// --- floats -------------------------------------------------------------------------------------

__device__ __forceinline__ void store_rounded(float value, float* to) { *to = value; }
__device__ __forceinline__ void store_rounded(float value, std::uint16_t* to) {
  *to = static_cast<std::uint16_t>(bf16_pair(value, 0.0F));
}

// grid.x: n_blocks for each row, whose threads take values in turns. Shared: a float for each warp.
// `out` may be memory that the source reads, number by number.
template <typename Source, typename T>
__global__ void store_rows_kernel(Source source, std::int64_t width, std::int64_t n_blocks, T* out,
                                  std::int64_t out_stride) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) / n_blocks;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) % n_blocks * kRowThreads +
                             static_cast<std::int64_t>(threadIdx.x);
  const auto values = source.row(row, reinterpret_cast<float*>(shared_memory()));
  for (std::int64_t i = first; i < width; i += n_blocks * kRowThreads)
    store_rounded(values.at(i), out + row * out_stride + i);
}

// T: float, or std::uint16_t for bf16.
template <typename T, typename Source>
void store_rows(Stream& stream, const Source& source, std::int64_t n_rows, std::int64_t width,
                T* out, std::int64_t out_stride) {
  const std::int64_t n_blocks = n_blocks_of_row(n_rows, ceil_div(width, kRowThreads));
  launch(stream, "linear: round", store_rows_kernel<Source, T>, grid_of_rows(n_rows, n_blocks),
         source, width, n_blocks, out, out_stride);
}

}  // namespace longhaul::cuda
