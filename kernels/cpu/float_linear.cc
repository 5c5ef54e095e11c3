#include "kernels/cpu/float_linear.h"

#include <algorithm>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

constexpr std::int64_t kFewRowsUnit = 16;  // outputs of their tasks: a cache line of out

bool is_bf16(const LinearArgs& args) { return args.weight.dtype == DType::kBf16; }

const float* bias_or_null(const LinearArgs& args) {
  return args.bias.empty() ? nullptr : args.bias.data();
}

// Outputs [begin, end) of task i: multiples of `unit`.
Extent task_outputs(std::int64_t i, std::int64_t n_tasks, std::int64_t n_out, std::int64_t unit) {
  const std::int64_t n_units = ceil_div(n_out, unit);
  return {i * n_units / n_tasks * unit, std::min(n_out, (i + 1) * n_units / n_tasks * unit)};
}

// bf16 weights by VDPBF16PS: `task_rows` rows to a task, outputs in units of `unit`.
void pairs_linear(const LinearArgs& args, std::int64_t chunk, std::int64_t task_rows,
                  std::int64_t unit, void (*kernel)(const cpu::PairLinearTask&)) {
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t n_in = args.weight.n_in;
  thread_local Scratch x_scratch;
  auto* x = reinterpret_cast<std::uint16_t*>(
      x_scratch.bytes(static_cast<std::size_t>(ceil_div(n_in, chunk) * chunk * n_rows) * 2));
  parallel_rows(n_rows, n_in, [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().pack_pair_x({.x = args.x.data(),
                                .n_rows = n_rows,
                                .n_in = n_in,
                                .chunk = chunk,
                                .out = x,
                                .row_begin = begin,
                                .row_end = end});
  });
  const std::int64_t n_blocks = ceil_div(n_rows, task_rows);
  const std::int64_t n_cuts = std::min(n_row_tasks(args.weight.n_out, n_in * task_rows, 65536),
                                       ceil_div(args.weight.n_out, unit));
  parallel_for(n_blocks * n_cuts, [&](std::int64_t task) {
    thread_local Scratch scratch;
    const std::int64_t row = task / n_cuts * task_rows;
    const Extent outputs = task_outputs(task % n_cuts, n_cuts, args.weight.n_out, unit);
    kernel({.x = x,
            .n_rows = n_rows,
            .chunk = chunk,
            .weight = static_cast<const std::uint16_t*>(args.weight.data),
            .weight_stride = args.weight.stride(),
            .n_in = n_in,
            .bias = bias_or_null(args),
            .out = args.out.data(),
            .out_stride = args.weight.n_out,
            .accumulate = args.output == LinearOutput::kAccumulate,
            .row_begin = row,
            .row_end = std::min(row + task_rows, n_rows),
            .output_begin = outputs.begin,
            .output_end = outputs.end,
            .scratch = scratch.bytes(cpu::kPairScratchBytes)});
  });
}

// x as the tiled kernel reads it: itself, or a rounded copy in `scratch`.
const float* tiled_x(const LinearArgs& args, Scratch& scratch) {
  if (!is_bf16(args)) return args.x.data();
  float* out = scratch.floats(args.x.size());
  parallel_rows(args.x.dim(0), args.weight.n_in, [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().round_x_to_bf16(args.x.data() + begin * args.weight.n_in,
                                   (end - begin) * args.weight.n_in,
                                   out + begin * args.weight.n_in);
  });
  return out;
}

}  // namespace

void few_rows_linear(const LinearArgs& args) {
  const cpu::Kernels& kernels = cpu::kernels();
  const std::int64_t x_stride = kernels.few_rows_x_floats(args.weight.n_in, is_bf16(args));
  thread_local Scratch scratch;
  float* x = scratch.floats(x_stride * args.x.dim(0));
  kernels.pack_few_rows_x({.x = args.x.data(),
                           .n_rows = args.x.dim(0),
                           .n_in = args.weight.n_in,
                           .weights_are_bf16 = is_bf16(args),
                           .out = x});
  const std::int64_t n_tasks = std::min(n_row_tasks(args.weight.n_out, args.weight.n_in, 65536),
                                        ceil_div(args.weight.n_out, kFewRowsUnit));
  parallel_for(n_tasks, [&](std::int64_t i) {
    const Extent outputs = task_outputs(i, n_tasks, args.weight.n_out, kFewRowsUnit);
    kernels.few_rows_linear({.x = x,
                             .x_stride = x_stride,
                             .n_rows = args.x.dim(0),
                             .weight = args.weight.data,
                             .weight_stride = args.weight.stride(),
                             .weights_are_bf16 = is_bf16(args),
                             .n_in = args.weight.n_in,
                             .bias = bias_or_null(args),
                             .out = args.out.data(),
                             .out_stride = args.weight.n_out,
                             .accumulate = args.output == LinearOutput::kAccumulate,
                             .output_begin = outputs.begin,
                             .output_end = outputs.end});
  });
}

void tiled_linear(const LinearArgs& args) {
  const cpu::Kernels& kernels = cpu::kernels();
  thread_local Scratch x_scratch;
  const float* x = tiled_x(args, x_scratch);
  const std::int64_t n_tasks = ceil_div(args.weight.n_out, cpu::kTiledOutputs);
  parallel_for(n_tasks, [&](std::int64_t i) {
    thread_local Scratch scratch;
    const Extent outputs = task_outputs(i, n_tasks, args.weight.n_out, cpu::kTiledOutputs);
    kernels.tiled_linear({.x = x,
                          .n_rows = args.x.dim(0),
                          .weight = args.weight.data,
                          .weight_stride = args.weight.stride(),
                          .weights_are_bf16 = is_bf16(args),
                          .n_in = args.weight.n_in,
                          .bias = bias_or_null(args),
                          .out = args.out.data(),
                          .out_stride = args.weight.n_out,
                          .accumulate = args.output == LinearOutput::kAccumulate,
                          .output_begin = outputs.begin,
                          .output_end = outputs.end,
                          .scratch = scratch.bytes(kernels.tiled_linear_scratch_bytes())});
  });
}

void few_rows_of_pairs_linear(const LinearArgs& args) {
  pairs_linear(args, cpu::kPairUnit, args.x.dim(0), kFewRowsUnit, cpu::kernels().pair_few_rows);
}

void tiled_pairs_linear(const LinearArgs& args) {
  pairs_linear(args, cpu::kPairChunk, cpu::kPairTaskRows, cpu::kPairOutputs,
               cpu::kernels().pair_linear);
}

}  // namespace longhaul
