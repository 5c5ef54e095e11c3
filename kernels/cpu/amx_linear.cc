#include "kernels/cpu/amx_linear.h"

#include <algorithm>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"

namespace longhaul {
namespace {

constexpr std::int64_t kUnit = cpu::kAmxLinearUnit;

// x as the kernels read it; memory of the calling thread, until the next call.
const std::uint16_t* packed_x(const LinearArgs& args, std::int64_t chunk_steps) {
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t n_in = args.weight.n_in;
  const std::int64_t n_tiles = ceil_div(n_rows, kUnit);
  const std::int64_t n_elements = n_tiles * kUnit * ceil_div(n_in, cpu::kAmxStep) * cpu::kAmxStep;
  thread_local Scratch scratch;
  auto* out =
      reinterpret_cast<std::uint16_t*>(scratch.bytes(static_cast<std::size_t>(n_elements) * 2));
  parallel_rows(n_tiles, kUnit * n_in, [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().amx_pack_x({.x = args.x.data(),
                               .n_rows = n_rows,
                               .n_in = n_in,
                               .chunk_steps = chunk_steps,
                               .out = out,
                               .row_begin = begin * kUnit,
                               .row_end = std::min(end * kUnit, n_rows)});
  });
  return out;
}

cpu::AmxLinearTask whole_task(const LinearArgs& args, const std::uint16_t* x) {
  return {.x = x,
          .n_rows = args.x.dim(0),
          .weight = static_cast<const std::uint16_t*>(args.weight.data),
          .weight_stride = args.weight.stride(),
          .n_in = args.weight.n_in,
          .bias = args.bias.empty() ? nullptr : args.bias.data(),
          .out = args.out.data(),
          .out_stride = args.weight.n_out,
          .accumulate = args.output == LinearOutput::kAccumulate,
          .row_begin = 0,
          .row_end = args.x.dim(0),
          .output_begin = 0,
          .output_end = args.weight.n_out,
          .scratch = nullptr};
}

// Outputs of cut `cut`: multiples of `unit`.
void cut_outputs(cpu::AmxLinearTask& task, std::int64_t cut, std::int64_t n_cuts,
                 std::int64_t unit) {
  const std::int64_t n_out = task.output_end;
  const std::int64_t n_units = ceil_div(n_out, unit);
  task.output_begin = cut * n_units / n_cuts * unit;
  task.output_end = std::min(n_out, (cut + 1) * n_units / n_cuts * unit);
}

}  // namespace

void amx_few_rows_linear(const LinearArgs& args) {
  const std::int64_t n_in = args.weight.n_in;
  const std::int64_t n_out = args.weight.n_out;
  const std::uint16_t* x = packed_x(args, ceil_div(n_in, cpu::kAmxStep));
  const std::int64_t n_cuts = std::min(n_row_tasks(n_out, n_in, 65536), ceil_div(n_out, kUnit));
  parallel_for(n_cuts, [&](std::int64_t cut) {
    cpu::AmxLinearTask task = whole_task(args, x);
    cut_outputs(task, cut, n_cuts, kUnit);
    cpu::kernels().amx_few_rows(task);
  });
}

void amx_tiled_linear(const LinearArgs& args) {
  constexpr std::int64_t kPanel = 2 * kUnit;
  const cpu::Kernels& kernels = cpu::kernels();
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t n_out = args.weight.n_out;
  const std::uint16_t* x = packed_x(args, cpu::kAmxChunkSteps);
  // As large as the caches allow, for a task reads all of x; but as many for every thread.
  const std::int64_t n_blocks = ceil_div(n_rows, cpu::kAmxTaskRows);
  const std::int64_t n_threads = kernel_threads();
  const std::int64_t n_cuts =
      std::min(ceil_div(n_out, kPanel),
               ceil_div(ceil_div(n_out, cpu::kAmxBlockOutputs), n_threads) * n_threads);
  parallel_for(n_blocks * n_cuts, [&](std::int64_t i) {
    thread_local Scratch scratch;
    cpu::AmxLinearTask task = whole_task(args, x);
    task.row_begin = i / n_cuts * cpu::kAmxTaskRows;
    task.row_end = std::min(task.row_begin + cpu::kAmxTaskRows, n_rows);
    cut_outputs(task, i % n_cuts, n_cuts, kPanel);
    task.scratch = scratch.bytes(kernels.amx_linear_scratch_bytes());
    kernels.amx_linear(task);
  });
}

}  // namespace longhaul
