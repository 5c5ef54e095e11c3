// linear with weights of integers: quantises activations, then multiplies by the kernel that suits
// the number of rows. Groups that are not whole parts, such as 3 query heads of 64 dims give, and
// int4 weights whose first input is within a run, take a plain kernel.
#include "kernels/cuda/integer_linear.cuh"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/product_rows.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ const std::uint32_t* words_of_lane(const PanelProduct& product,
                                                              std::int64_t lane) {
  return reinterpret_cast<const std::uint32_t*>(product.weight +
                                                lane / kPanelOutputs * product.panel_bytes) +
         lane % kPanelOutputs;
}

// The product of a lane with a row.
__device__ float plain_sum(const Int8Work& work, std::int64_t lane, std::int64_t row) {
  const std::uint32_t* words = words_of_lane(work, lane);
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
  return out;
}
// A run that two groups share is two runs, as on CPUs.
__device__ float plain_sum(const Int4Work& work, std::int64_t lane, std::int64_t row) {
  const std::uint32_t* words = words_of_lane(work, lane);
  float out = 0.0F;
  std::int64_t line = work.first_input / kInt4Line;
  for (std::int64_t g = 0; g < work.n_groups; ++g) {
    const float scale = work.ranges[g * work.range_rows + row].scale;
    const std::uint32_t* codes = work.codes + (row * work.n_groups + g) * (work.group / kInt8Step);
    const std::int64_t left = work.n_in - g * work.group;
    const std::int64_t last =
        line + ((left < work.group ? left : work.group) + kInt4Line - 1) / kInt4Line;
    while (line < last) {
      const auto run = static_cast<int>(line / kRunLines);
      std::int32_t sum = 0;
      for (; line < last && line / kRunLines == run; ++line, codes += 2) {
        const std::uint32_t word = words[line * kPanelOutputs];
        sum += dot_u8_s8(word & 0x0f0f0f0fU, codes[0], 0) - dot_u8_s8(0x08080808U, codes[0], 0);
        sum +=
            dot_u8_s8(word >> 4U & 0x0f0f0f0fU, codes[1], 0) - dot_u8_s8(0x08080808U, codes[1], 0);
      }
      const float of_lane =
          float_of_f16(work.scales_of(lane / kPanelOutputs, run)[lane % kPanelOutputs]);
      out = rounded_sum(out,
                        rounded_product(rounded_product(static_cast<float>(sum), of_lane), scale));
    }
  }
  return out;
}

// A thread for each lane, grid.y for the row. Any group.
template <typename Work>
__global__ void plain_kernel(Work work) {
  const std::int64_t lane = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  if (lane >= work.n_panels * kPanelOutputs) return;
  LaneOutput(work, lane).store(work, row, plain_sum(work, lane, row));
}

PanelProduct product_of(const ProjectedPart& part) {
  const WeightView& w = part.weight;
  require(reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0,
          "linear: weights of integers in GPU memory must be aligned to 16 bytes");
  const std::int64_t bits = w.dtype == DType::kI4 ? 4 : 8;
  return {.weight = static_cast<const std::uint8_t*>(w.data),
          .panel_bytes = kInt8Panel * w.stride() * bits / 8,
          .n_panels = ceil_div(w.first_lane + w.n_out, kInt8Panel),
          .first_lane = w.first_lane,
          .n_out = w.n_out,
          .bias = part.bias.empty() ? nullptr : part.bias.data(),
          .out = part.out.data(),
          .out_stride = part.out.stride(0),
          .accumulates = part.output == LinearOutput::kAccumulate};
}

void set_weights(const ProjectedPart& part, Int8Weights& to) {
  to = {product_of(part), part.weight.scales};
}
void set_weights(const ProjectedPart& part, Int4Weights& to) {
  const WeightView& w = part.weight;
  require(w.int4.group % kInt4Run == 0 && w.group % kInt4Line == 0,
          "linear: int4 weights in groups that cut runs, or activations in groups that cut lines");
  const auto first_run = static_cast<int>(w.first_input / kInt4Run);
  to = {product_of(part),
        w.group_scales,
        kInt8Panel * (w.stride() / w.int4.group),
        first_run,
        static_cast<int>(w.int4.group / kInt4Run),
        static_cast<int>(w.first_input % kInt4Run)};
  to.weight += std::int64_t{first_run} * kRunLines * kLineBytes;
}

void few_rows(Stream& stream, const Works<Int8Weights>& works) { int8_few_rows(stream, works); }
void few_rows(Stream& stream, const Works<Int4Weights>& works) { int4_few_rows(stream, works); }
void tiles(Stream& stream, const Int8Work& work) { int8_tiles(stream, work); }
void tiles(Stream& stream, const Int4Work& work) { int4_tiles(stream, work); }

template <typename Weights>
void all_few_rows(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts) {
  while (!parts.empty()) {
    const std::size_t n = std::min<std::size_t>(parts.size(), kMostWeightsAtOnce);
    Works<Weights> works = {.rows = rows, .weights = {}, .n_weights = static_cast<int>(n)};
    for (std::size_t i = 0; i < n; ++i) set_weights(parts[i], works.weights[i]);
    few_rows(stream, works);
    parts = parts.subspan(n);
  }
}

// Work: of the weights' type.
template <typename Weights, typename Work>
void products(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts) {
  if (rows.has_parts() && rows.n_rows <= kFewIntegerRows)
    return all_few_rows<Weights>(stream, rows, parts);
  for (const ProjectedPart& part : parts) {
    Work work{rows, {}};
    set_weights(part, work);
    if (rows.has_parts()) {
      tiles(stream, work);
      continue;
    }
    launch(stream, "linear: integers, plain", plain_kernel<Work>,
           {.x = ceil_div(work.n_panels * kPanelOutputs, kThreads),
            .y = rows.n_rows,
            .block = kThreads},
           work);
  }
}

}  // namespace

Int8Rows integer_rows(Stream& stream, std::int64_t n_rows, const WeightView& weight) {
  const bool has_parts = weight.group % kPartInputs == 0 &&
                         (weight.dtype != DType::kI4 || weight.first_input % kInt4Run == 0);
  Int8Rows rows = {.codes = nullptr,
                   .ranges = nullptr,
                   .n_rows = n_rows,
                   .range_rows = ceil_div(n_rows, 64) * 64,
                   .n_in = weight.n_in,
                   .n_steps = ceil_div(weight.n_in, kInt8Step),
                   .group = weight.group,
                   .n_groups = ceil_div(weight.n_in, weight.group),
                   .parts_of_group = has_parts ? weight.group / kPartInputs : 0,
                   .n_parts = 0,
                   .interleaves = has_parts && weight.dtype == DType::kI8};
  rows.n_parts = rows.n_groups * rows.parts_of_group;
  const std::int64_t code_bytes = ceil_div(n_rows * rows.n_groups * rows.group, 16) * 16;
  const std::int64_t range_bytes =
      rows.n_groups * rows.range_rows * static_cast<std::int64_t>(sizeof(Int8Range));
  std::byte* scratch = stream.scratch(static_cast<std::size_t>(code_bytes + range_bytes));
  rows.codes = reinterpret_cast<std::uint32_t*>(scratch);
  rows.ranges = reinterpret_cast<Int8Range*>(scratch + code_bytes);
  return rows;
}

void integer_products(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts) {
  if (parts.front().weight.dtype == DType::kI4)
    return products<Int4Weights, Int4Work>(stream, rows, parts);
  products<Int8Weights, Int8Work>(stream, rows, parts);
}

void integer_linear(Stream& stream, const LinearArgs& args) {
  if (args.x.dim(0) == 0 || args.weight.n_out == 0) return;
  const Int8Rows rows = integer_rows(stream, args.x.dim(0), args.weight);
  quantise(stream, rows, PlainRows{args.x.data(), args.weight.n_in});
  const ProjectedPart part = {
      .weight = args.weight, .bias = args.bias, .out = args.out, .output = args.output};
  integer_products(stream, rows, {&part, 1});
}

}  // namespace longhaul::cuda
