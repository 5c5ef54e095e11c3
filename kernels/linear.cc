#include "kernels/linear.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/int8_linear.h"
#include "kernels/linear_paths.h"
#include "kernels/onednn.h"
#include "kernels/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

// From about 30 rows on packing the weights pays (longhaul bench kernels --all-paths).
constexpr std::int64_t kFewRows = 24;

void check(const LinearArgs& args) {
  if (args.weight.dtype != DType::kI8) require_float_weight("linear", args.weight);
  require_equal("linear", "n_in of x", args.x.dim(1), args.weight.n_in);
  require_equal("linear", "n_tokens of out", args.out.dim(0), args.x.dim(0));
  require_equal("linear", "n_out of out", args.out.dim(1), args.weight.n_out);
  if (!args.bias.empty()) {
    require_equal("linear", "size of bias", static_cast<std::int64_t>(args.bias.size()),
                  args.weight.n_out);
  }
  require(args.x.is_contiguous() && args.out.is_contiguous(),
          "linear: x and out must be contiguous");
}

bool is_bf16(const LinearArgs& args) { return args.weight.dtype == DType::kBf16; }

const float* bias_or_null(const LinearArgs& args) {
  return args.bias.empty() ? nullptr : args.bias.data();
}

// Outputs [begin, end) of task i: multiples of `unit`.
Extent task_outputs(std::int64_t i, std::int64_t n_tasks, std::int64_t n_out, std::int64_t unit) {
  const std::int64_t n_units = ceil_div(n_out, unit);
  return {i * n_units / n_tasks * unit, std::min(n_out, (i + 1) * n_units / n_tasks * unit)};
}

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
  constexpr std::int64_t kUnit = 16;  // outputs: a cache line of out
  const std::int64_t n_tasks = std::min(n_row_tasks(args.weight.n_out, args.weight.n_in, 65536),
                                        ceil_div(args.weight.n_out, kUnit));
  parallel_for(n_tasks, [&](std::int64_t i) {
    const Extent outputs = task_outputs(i, n_tasks, args.weight.n_out, kUnit);
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

}  // namespace

std::string_view name_of(LinearPath path) {
  switch (path) {
    case LinearPath::kFewRows:
      return "few_rows";
    case LinearPath::kTiled:
      return "tiled";
    case LinearPath::kOneDnn:
      return "onednn";
    case LinearPath::kInt8:
      return "int8";
  }
  return "unknown";
}

// oneDNN picks instructions by itself, so it serves only while the machine's best set is active:
// LONGHAUL_ISA=baseline then really runs without AVX. Its bf16 products need AVX-512 at least, and
// without AMX Intel's are slower than widening the weights while they are packed (longhaul bench
// kernels --all-paths: 1B_up of 512 rows takes 0.19 s against 0.11 s on one core of Emerald
// Rapids).
LinearPath linear_path(std::int64_t n_rows, DType weight_dtype) {
  if (weight_dtype == DType::kI8) return LinearPath::kInt8;
  if (n_rows <= kFewRows) return LinearPath::kFewRows;
  if (!onednn::in_build() || active_isa() != supported_isas().back()) return LinearPath::kTiled;
  const bool fast =
      weight_dtype == DType::kF32 || (active_isa() == Isa::kAvx512Bf16 && onednn::has_fast_bf16());
  return fast ? LinearPath::kOneDnn : LinearPath::kTiled;
}

void linear_by(LinearPath path, const LinearArgs& args) {
  check(args);
  require((path == LinearPath::kInt8) == (args.weight.dtype == DType::kI8),
          "linear: int8 weights and no others go by the path int8");
  if (args.x.dim(0) == 0 || args.weight.n_out == 0) return;
  switch (path) {
    case LinearPath::kFewRows:
      return few_rows_linear(args);
    case LinearPath::kTiled:
      return tiled_linear(args);
    case LinearPath::kOneDnn:
      return onednn::linear(args);
    case LinearPath::kInt8:
      return int8_linear(args);
  }
}

void linear(StreamRef stream, const LinearArgs& args) {
  switch (stream.device()) {
    case Device::kCpu:
      return linear_by(linear_path(args.x.dim(0), args.weight.dtype), args);
    case Device::kCuda:
      check(args);
      return cuda::linear(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
