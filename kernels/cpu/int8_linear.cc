#include "kernels/cpu/int8_linear.h"

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/panel_tasks.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

// With fewer rows the weights pass so quickly that the AMX kernel's copy of them costs more than it
// saves (docs/benchmarks/kernels_amx.md).
constexpr std::int64_t kAmxRows = 17;

// Activations as the kernel reads them; memory of the calling thread, until the next call.
cpu::Int8X quantise(const LinearArgs& args) {
  const cpu::Kernels& kernels = cpu::kernels();
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t n_in = args.weight.n_in;
  const std::int64_t n_parts = n_rows * ceil_div(n_in, args.weight.group);
  thread_local Scratch bytes;
  thread_local Scratch numbers;
  float* scales = numbers.floats(2 * n_parts);
  const cpu::Int8X x = {
      .integers = bytes.bytes(static_cast<std::size_t>((n_parts + cpu::kAmxInt8MoreRows) *
                                                           kernels.int8_x_bytes(args.weight.group) +
                                                       cpu::kAmxInt8MoreBytes)),
      .scales = scales,
      .sums = reinterpret_cast<std::int32_t*>(scales + n_parts),
      .n_rows = n_rows};
  parallel_rows(n_rows, n_in, [&](std::int64_t begin, std::int64_t end) {
    kernels.quantise_int8_x({.x = args.x.data(),
                             .n_in = n_in,
                             .group = args.weight.group,
                             .out = x,
                             .row_begin = begin,
                             .row_end = end});
  });
  return x;
}

}  // namespace

void int8_linear(const LinearArgs& args) {
  const cpu::Kernels& kernels = cpu::kernels();
  const WeightView& w = args.weight;
  const cpu::Int8X x = quantise(args);
  const std::int64_t n_rows = args.x.dim(0);
  const bool by_amx = kernels.amx_int8_linear != nullptr && n_rows >= kAmxRows;
  const std::size_t scratch_bytes =
      by_amx ? kernels.amx_int8_scratch_bytes(w.group)
             : static_cast<std::size_t>(cpu::kInt8TaskRows * cpu::kInt8TileLanes) * sizeof(float);
  for_panel_tasks(args, [&](const PanelTask& task) {
    thread_local Scratch scratch;
    (by_amx ? kernels.amx_int8_linear : kernels.int8_linear)(
        {.x = x,
         .n_in = w.n_in,
         .group = w.group,
         .weight = static_cast<const std::uint8_t*>(w.data),
         .panel_bytes = kInt8Panel * w.stride(),
         .scales = w.scales,
         .first_lane = w.first_lane,
         .bias = args.bias.empty() ? nullptr : args.bias.data(),
         .out = args.out.data(),
         .out_stride = w.n_out,
         .accumulate = args.output == LinearOutput::kAccumulate,
         .row_begin = task.row_begin,
         .row_end = task.row_end,
         .lane_begin = task.lane_begin,
         .lane_end = task.lane_end,
         .scratch = reinterpret_cast<float*>(scratch.bytes(scratch_bytes))});
  });
}

}  // namespace longhaul
