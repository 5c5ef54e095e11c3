// linear with int8 weights: quantises activations, then multiplies by the kernel that suits the
// number of rows. Groups that are not whole multiples of kInt8Group, such as 3 query heads of 64
// dims give, take a plain kernel.
#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/int8_linear.cuh"
#include "kernels/cuda/product_rows.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kThreads = 256;

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

Int8Weights weights_of(const ProjectedPart& part) {
  const WeightView& w = part.weight;
  require(reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0,
          "linear: int8 weights in GPU memory must be aligned to 16 bytes");
  return {.weight = static_cast<const std::uint8_t*>(w.data),
          .panel_bytes = kInt8Panel * w.stride(),
          .n_panels = ceil_div(w.first_lane + w.n_out, kInt8Panel),
          .scales = w.scales,
          .first_lane = w.first_lane,
          .n_out = w.n_out,
          .bias = part.bias.empty() ? nullptr : part.bias.data(),
          .out = part.out.data(),
          .out_stride = part.out.stride(0),
          .accumulates = part.output == LinearOutput::kAccumulate};
}

void few_rows(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts) {
  while (!parts.empty()) {
    const std::size_t n = std::min<std::size_t>(parts.size(), kMostInt8Weights);
    Int8Works works = {.rows = rows, .weights = {}, .n_weights = static_cast<int>(n)};
    for (std::size_t i = 0; i < n; ++i) works.weights[i] = weights_of(parts[i]);
    int8_few_rows(stream, works);
    parts = parts.subspan(n);
  }
}

}  // namespace

Int8Rows int8_rows(Stream& stream, std::int64_t n_rows, const WeightView& weight) {
  Int8Rows rows = {.codes = nullptr,
                   .ranges = nullptr,
                   .n_rows = n_rows,
                   .range_rows = ceil_div(n_rows, 64) * 64,
                   .n_in = weight.n_in,
                   .n_steps = ceil_div(weight.n_in, kInt8Step),
                   .group = weight.group,
                   .n_groups = ceil_div(weight.n_in, weight.group),
                   .parts_of_group = weight.group % kInt8Group == 0 ? weight.group / kInt8Group : 0,
                   .n_parts = 0};
  rows.n_parts = rows.n_groups * rows.parts_of_group;
  const std::int64_t code_bytes = ceil_div(n_rows * rows.n_groups * rows.group, 16) * 16;
  const std::int64_t range_bytes =
      rows.n_groups * rows.range_rows * static_cast<std::int64_t>(sizeof(Int8Range));
  std::byte* scratch = stream.scratch(static_cast<std::size_t>(code_bytes + range_bytes));
  rows.codes = reinterpret_cast<std::uint32_t*>(scratch);
  rows.ranges = reinterpret_cast<Int8Range*>(scratch + code_bytes);
  return rows;
}

void int8_products(Stream& stream, const Int8Rows& rows, std::span<const ProjectedPart> parts) {
  if (rows.has_parts() && rows.n_rows <= kInt8FewRows) return few_rows(stream, rows, parts);
  for (const ProjectedPart& part : parts) {
    const Int8Work work{rows, weights_of(part)};
    if (rows.has_parts()) {
      int8_tiles(stream, work);
      continue;
    }
    launch(stream, "linear: int8, plain", plain_kernel,
           {.x = ceil_div(work.n_panels * kPanelOutputs, kThreads),
            .y = rows.n_rows,
            .block = kThreads},
           work);
  }
}

void int8_linear(Stream& stream, const LinearArgs& args) {
  if (args.x.dim(0) == 0 || args.weight.n_out == 0) return;
  const Int8Rows rows = int8_rows(stream, args.x.dim(0), args.weight);
  quantise(stream, rows, PlainRows{args.x.data(), args.weight.n_in});
  const ProjectedPart part = {
      .weight = args.weight, .bias = args.bias, .out = args.out, .output = args.output};
  int8_products(stream, rows, {&part, 1});
}

}  // namespace longhaul::cuda
