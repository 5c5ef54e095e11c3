#include "kernels/cpu/int4_linear.h"

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/panel_tasks.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

// Fewer pass so quickly that the AMX kernel's copy of the weights costs more than it saves.
constexpr std::int64_t kFewestAmxRows = 20;

// Activations as the kernel reads them; memory of the calling thread, until the next call.
cpu::Int4X quantise_x(const LinearArgs& args, const cpu::Int4Cut& cut) {
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t n_groups = ceil_div(cut.n_in, cut.group);
  thread_local Scratch bytes;
  thread_local Scratch numbers;
  float* scales = numbers.floats(n_rows * n_groups * (1 + cut.most_runs()));
  const cpu::Int4X x = {
      .integers = bytes.bytes(static_cast<std::size_t>(
          (n_rows * n_groups + cpu::kAmxInt8MoreRows) * cut.group + cpu::kAmxInt8MoreBytes)),
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
  const cpu::Kernels& kernels = cpu::kernels();
  const bool by_amx = kernels.amx_int4_linear != nullptr && args.x.dim(0) >= kFewestAmxRows &&
                      cut.first_input % kInt4Run == 0 && cut.group % kInt4Run == 0;
  const std::size_t scratch_bytes =
      by_amx ? kernels.amx_int4_scratch_bytes()
             : static_cast<std::size_t>(cpu::kInt8TaskRows * cpu::kInt8TileLanes) * sizeof(float);
  for_panel_tasks(args, [&](const PanelTask& task) {
    thread_local Scratch scratch;
    (by_amx ? kernels.amx_int4_linear : kernels.int4_linear)(
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
         .row_begin = task.row_begin,
         .row_end = task.row_end,
         .lane_begin = task.lane_begin,
         .lane_end = task.lane_end,
         .scratch = reinterpret_cast<float*>(scratch.bytes(scratch_bytes))});
  });
}

}  // namespace longhaul
