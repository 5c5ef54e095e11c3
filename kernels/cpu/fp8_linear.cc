#include "kernels/cpu/fp8_linear.h"

#include <algorithm>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/fp8_weights.h"

namespace longhaul {
namespace {

constexpr std::int64_t kFp8Unit = 16;  // outputs of a task of few rows: a cache line of out

const float* bias_of(const LinearArgs& args) {
  return args.bias.empty() ? nullptr : args.bias.data();
}

// Inputs from the beginning of the first block.
std::int64_t inputs_of(const WeightView& w) { return w.first_input + w.n_in; }
const std::uint8_t* codes_of(const WeightView& w) {
  return static_cast<const std::uint8_t*>(w.data) - w.first_input;
}
std::int64_t packed_width(const WeightView& w) {
  return ceil_div(inputs_of(w), kFp8Chunk) * kFp8Chunk;
}

// x as the weight takes it, [n_rows, n_in].
const float* fp8_inputs(const LinearArgs& args, Scratch& scratch) {
  const WeightView& w = args.weight;
  if (w.fp8.inputs == Fp8Inputs::kAsTheyAre) return args.x.data();
  float* out = scratch.floats(w.n_in * args.x.dim(0));
  parallel_rows(args.x.dim(0), w.n_in, [&](std::int64_t begin, std::int64_t end) {
    std::copy_n(args.x.data() + begin * w.n_in, (end - begin) * w.n_in, out + begin * w.n_in);
    for (std::int64_t row = begin; row < end; ++row)
      round_fp8_inputs(w.first_input, {out + row * w.n_in, static_cast<std::size_t>(w.n_in)});
  });
  return out;
}

// x in the order in which the kernels widen codes, [n_rows, packed_width].
const float* packed_fp8_x(const LinearArgs& args, Scratch& scratch) {
  const WeightView& w = args.weight;
  const std::int64_t width = packed_width(w);
  thread_local Scratch rounded;
  const float* x = fp8_inputs(args, rounded);
  float* out = scratch.floats(width * args.x.dim(0));
  parallel_rows(args.x.dim(0), width, [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().pack_fp8_x({.x = x + begin * w.n_in,
                               .n_rows = end - begin,
                               .n_skipped = w.first_input,
                               .n_in = inputs_of(w),
                               .out = out + begin * width});
  });
  return out;
}

// Outputs [outputs) as floats, [outputs.size(), packed_width].
void widen_outputs(const WeightView& w, Extent outputs, float* out) {
  for (std::int64_t output = outputs.begin; output < outputs.end; ++output) {
    const std::int64_t block = (w.first_lane + output) / w.fp8.block_out;
    cpu::kernels().widen_fp8({.codes = codes_of(w) + output * w.stride(),
                              .n_in = inputs_of(w),
                              .scales = w.block_scales + block * w.scale_stride,
                              .block_in = w.fp8.block_in,
                              .out = out + (output - outputs.begin) * packed_width(w)});
  }
}

}  // namespace

void few_rows_fp8_linear(const LinearArgs& args) {
  const WeightView& w = args.weight;
  thread_local Scratch scratch;
  const float* x = packed_fp8_x(args, scratch);
  const std::int64_t n_units = ceil_div(w.n_out, kFp8Unit);
  const std::int64_t n_tasks = std::min(n_row_tasks(w.n_out, w.n_in, 65536), n_units);
  parallel_for(n_tasks, [&](std::int64_t i) {
    cpu::kernels().few_rows_fp8_linear(
        {.x = x,
         .x_stride = packed_width(w),
         .n_rows = args.x.dim(0),
         .codes = codes_of(w),
         .code_stride = w.stride(),
         .n_in = inputs_of(w),
         .scales = w.block_scales,
         .scale_stride = w.scale_stride,
         .block_out = w.fp8.block_out,
         .block_in = w.fp8.block_in,
         .first_output = w.first_lane,
         .bias = bias_of(args),
         .out = args.out.data(),
         .out_stride = w.n_out,
         .accumulate = args.output == LinearOutput::kAccumulate,
         .output_begin = i * n_units / n_tasks * kFp8Unit,
         .output_end = std::min(w.n_out, (i + 1) * n_units / n_tasks * kFp8Unit)});
  });
}

// Tiles of outputs become floats in scratch memory, and these are multiplied as float weights are.
void tiled_fp8_linear(const LinearArgs& args) {
  const WeightView& w = args.weight;
  thread_local Scratch x_scratch;
  const float* x = packed_fp8_x(args, x_scratch);
  const std::int64_t width = packed_width(w);
  parallel_for(ceil_div(w.n_out, cpu::kTiledOutputs), [&](std::int64_t i) {
    const cpu::Kernels& kernels = cpu::kernels();
    thread_local Scratch widened;
    thread_local Scratch scratch;
    const Extent outputs{i * cpu::kTiledOutputs, std::min(w.n_out, (i + 1) * cpu::kTiledOutputs)};
    float* floats = widened.floats(cpu::kTiledOutputs * width);
    widen_outputs(w, outputs, floats);
    kernels.tiled_linear({.x = x,
                          .n_rows = args.x.dim(0),
                          .weight = floats,
                          .weight_stride = width,
                          .weights_are_bf16 = false,
                          .n_in = width,
                          .bias = args.bias.empty() ? nullptr : bias_of(args) + outputs.begin,
                          .out = args.out.data() + outputs.begin,
                          .out_stride = w.n_out,
                          .accumulate = args.output == LinearOutput::kAccumulate,
                          .output_begin = 0,
                          .output_end = outputs.size(),
                          .scratch = scratch.bytes(kernels.tiled_linear_scratch_bytes())});
  });
}

}  // namespace longhaul
