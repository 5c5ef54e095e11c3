#include "kernels/cpu/int4_linear.h"

#include <algorithm>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

// Activations as the kernel reads them; memory of the calling thread, until the next call.
cpu::Int4X quantise_x(const LinearArgs& args, const cpu::Int4Cut& cut) {
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t n_groups = ceil_div(cut.n_in, cut.group);
  thread_local Scratch bytes;
  thread_local Scratch numbers;
  float* scales = numbers.floats(n_rows * n_groups * (1 + cut.most_runs()));
  const cpu::Int4X x = {
      .integers = bytes.bytes(static_cast<std::size_t>(n_rows * n_groups * cut.group)),
      .scales = scales,
      .sums = reinterpret_cast<std::int32_t*>(scales + n_rows * n_groups),
      .n_rows = n_rows};
  parallel_rows(n_rows, cut.n_in, [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().quantise_int4_x(
        {.x = args.x.data(), .cut = cut, .out = x, .row_begin = begin, .row_end = end});
  });
  return x;
}

}  // namespace

void int4_linear(const LinearArgs& args) {
  const WeightView& w = args.weight;
  const cpu::Int4Cut cut = {.n_in = w.n_in, .group = w.group, .first_input = w.first_input};
  const cpu::Int4X x = quantise_x(args, cut);
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t end = w.first_lane + w.n_out;
  // Tasks: blocks of rows, and of each as many cuts of the lanes as there is work for.
  const std::int64_t n_tiles = ceil_div(end, cpu::kInt8TileLanes);
  const std::int64_t n_cuts =
      std::min(n_tiles, n_row_tasks(end * std::min(n_rows, cpu::kInt8TaskRows), w.n_in, 131072));
  const std::int64_t n_blocks = ceil_div(n_rows, cpu::kInt8TaskRows);
  parallel_for(n_blocks * n_cuts, [&](std::int64_t task) {
    thread_local Scratch scratch;
    const std::int64_t row = task / n_cuts * cpu::kInt8TaskRows;
    const std::int64_t cut_number = task % n_cuts;
    const std::int64_t lane_begin = cut_number * n_tiles / n_cuts * cpu::kInt8TileLanes;
    const std::int64_t lane_end = (cut_number + 1) * n_tiles / n_cuts * cpu::kInt8TileLanes;
    cpu::kernels().int4_linear(
        {.x = x,
         .cut = cut,
         .codes = static_cast<const std::uint8_t*>(w.data),
         .panel_bytes = kInt8Panel * w.stride() / 2,
         .scales = w.group_scales,
         .panel_scales = kInt8Panel * (w.stride() / w.int4.group),
         .runs_of_scale = static_cast<int>(w.int4.group / kInt4Run),
         .first_lane = w.first_lane,
         .bias = args.bias.empty() ? nullptr : args.bias.data(),
         .out = args.out.data(),
         .out_stride = w.n_out,
         .accumulate = args.output == LinearOutput::kAccumulate,
         .row_begin = row,
         .row_end = std::min(row + cpu::kInt8TaskRows, n_rows),
         .lane_begin = std::max(lane_begin, w.first_lane),
         .lane_end = std::min(lane_end, end),
         .scratch = scratch.floats(cpu::kInt8TaskRows * cpu::kInt8TileLanes)});
  });
}

}  // namespace longhaul
