// linear with int8 weights: quantises activations, then multiplies by the kernel that suits the
// number of rows. Groups of other sizes than kInt8Group, which only tests use, take a plain kernel.
#include "base/error.h"
#include "kernels/cuda/int8_linear.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr std::uint32_t kInfinityBits = 0x7f800000U;

// x of a step, zeros where the row has ended.
struct Step {
  float at[4];
};
__device__ __forceinline__ Step load_step(const float* row, std::int64_t first, std::int64_t n_in) {
  Step out;
  for (int i = 0; i < 4; ++i) out.at[i] = first + i < n_in ? row[first + i] : 0.0F;
  return out;
}

// A warp for each group of a row, rows next to each other.
__global__ void quantise_kernel(Int8Work work, bool interleaves) {
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * kWarps +
                              static_cast<std::int64_t>(threadIdx.x / kWarp);
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  if (number >= work.n_rows * work.n_groups) return;
  const std::int64_t row = number / work.n_groups;
  const std::int64_t group = number % work.n_groups;
  const float* x = work.x + row * work.n_in;
  const std::int64_t n_steps = work.group / kInt8Step;
  std::uint32_t bits = 0;  // of the largest magnitude; infinities and NaNs are larger than all
  for (std::int64_t s = lane; s < n_steps; s += kWarp) {
    const Step step = load_step(x, group * work.group + s * kInt8Step, work.n_in);
    for (const float value : step.at) bits = Larger()(__float_as_uint(value) & 0x7fffffffU, bits);
  }
  bits = reduce_warp(bits, Larger());
  const float largest = __uint_as_float(bits);
  const bool is_finite = bits < kInfinityBits;
  const bool is_zero = !is_finite || largest < 1e-35F;
  const float inverse = is_zero ? 0.0F : 127.0F / largest;
  std::uint32_t* codes = work.codes + number * n_steps;
  std::int32_t sum = 0;
  for (std::int64_t s = lane; s < n_steps; s += kWarp) {
    const Step step = load_step(x, group * work.group + s * kInt8Step, work.n_in);
    std::uint32_t word = 0;
    for (int i = 0; i < 4 && !is_zero; ++i) {
      const auto code = static_cast<std::int32_t>(rintf(rounded_product(step.at[i], inverse)));
      sum += code;
      word |= (static_cast<std::uint32_t>(code) & 0xffU) << static_cast<unsigned>(8 * i);
    }
    codes[interleaves ? word_of_step(static_cast<int>(s)) : s] = word;
  }
  sum = reduce_warp(sum, Add());
  if (lane != 0) return;
  const float scale = is_zero ? 0.0F : largest / 127.0F;
  work.ranges[group * work.range_rows + row] = {is_finite ? scale : __uint_as_float(0x7fc00000U),
                                                (interleaves ? kSumBits : 0) - 128 * sum};
}

// A thread for each lane, grid.y for the row. Any group.
__global__ void plain_kernel(Int8Work work) {
  const std::int64_t lane = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  if (lane >= work.n_panels * kPanelOutputs) return;
  const auto* words = reinterpret_cast<const std::uint32_t*>(work.weight + lane / kPanelOutputs *
                                                                               work.panel_bytes) +
                      lane % kPanelOutputs;
  const std::int64_t group_steps = work.group / kInt8Step;
  float out = 0.0F;
  for (std::int64_t g = 0; g < work.n_groups; ++g) {
    const Int8Range range = work.ranges[g * work.range_rows + row];
    const std::uint32_t* codes = work.codes + (row * work.n_groups + g) * group_steps;
    const std::int64_t left = work.n_steps - g * group_steps;
    const std::int64_t n = left < group_steps ? left : group_steps;
    std::int32_t sum = range.start;
    for (std::int64_t s = 0; s < n; ++s) {
      sum = dot_u8_s8(words[(g * group_steps + s) * kPanelOutputs], codes[s], sum);
    }
    out = rounded_sum(out, rounded_product(static_cast<float>(sum), range.scale));
  }
  store_output(work, row, lane, out);
}

}  // namespace

void int8_linear(Stream& stream, const LinearArgs& args) {
  const WeightView& w = args.weight;
  const std::int64_t n_rows = args.x.dim(0);
  if (n_rows == 0 || w.n_out == 0) return;
  require(reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0,
          "linear: int8 weights in GPU memory must be aligned to 16 bytes");
  Int8Work work = {.x = args.x.data(),
                   .codes = nullptr,
                   .ranges = nullptr,
                   .n_rows = n_rows,
                   .range_rows = ceil_div(n_rows, 64) * 64,
                   .n_in = w.n_in,
                   .n_steps = ceil_div(w.n_in, kInt8Step),
                   .group = w.group,
                   .n_groups = ceil_div(w.n_in, w.group),
                   .weight = static_cast<const std::uint8_t*>(w.data),
                   .panel_bytes = kInt8Panel * w.stride(),
                   .n_panels = ceil_div(w.first_lane + w.n_out, kInt8Panel),
                   .scales = w.scales,
                   .first_lane = w.first_lane,
                   .n_out = w.n_out,
                   .bias = args.bias.empty() ? nullptr : args.bias.data(),
                   .out = args.out.data(),
                   .accumulates = args.output == LinearOutput::kAccumulate};
  const std::int64_t code_bytes = ceil_div(n_rows * work.n_groups * work.group, 16) * 16;
  const std::int64_t range_bytes =
      work.n_groups * work.range_rows * static_cast<std::int64_t>(sizeof(Int8Range));
  std::byte* scratch = stream.scratch(static_cast<std::size_t>(code_bytes + range_bytes));
  work.codes = reinterpret_cast<std::uint32_t*>(scratch);
  work.ranges = reinterpret_cast<Int8Range*>(scratch + code_bytes);
  const bool is_usual = work.group == kInt8Group;
  launch(stream, "linear: quantise", quantise_kernel,
         {.x = ceil_div(n_rows * work.n_groups, kWarps), .block = kThreads}, work, is_usual);
  if (!is_usual) {
    return launch(
        stream, "linear: int8, plain", plain_kernel,
        {.x = ceil_div(work.n_panels * kPanelOutputs, kThreads), .y = n_rows, .block = kThreads},
        work);
  }
  if (n_rows <= kInt8FewRows) return int8_few_rows(stream, work);
  int8_tiles(stream, work);
}

}  // namespace longhaul::cuda
