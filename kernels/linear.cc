#include "kernels/linear.h"

#include <algorithm>

#include "kernels/amx_linear.h"
#include "kernels/bf16_pairs.h"
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
// With AMX copying the weights pays later: so many rows' sums fit its registers, and 16 rows of
// weights stream from memory as they are.
constexpr std::int64_t kFewRowsAmx = 64;
constexpr std::int64_t kFewRowsUnit = 16;  // outputs of their tasks: a cache line of out

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

void few_rows_of_pairs_linear(const LinearArgs& args) {
  const std::int64_t chunk = ceil_div(args.weight.n_in, cpu::kPairUnit) * cpu::kPairUnit;
  pairs_linear(args, chunk, args.x.dim(0), kFewRowsUnit, cpu::kernels().pair_few_rows);
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
    case LinearPath::kFewRowsOfPairs:
      return "few_rows_of_pairs";
    case LinearPath::kTiledPairs:
      return "tiled_pairs";
    case LinearPath::kFewRowsAmx:
      return "few_rows_amx";
    case LinearPath::kTiledAmx:
      return "tiled_amx";
    case LinearPath::kOneDnn:
      return "onednn";
    case LinearPath::kInt8:
      return "int8";
  }
  return "unknown";
}

bool has_linear_amx() { return cpu::kernels().amx_linear != nullptr; }
bool has_linear_pairs() { return cpu::kernels().pair_linear != nullptr; }

// oneDNN picks instructions by itself, so it serves only while the machine's best set is active:
// LONGHAUL_ISA=baseline then really runs without AVX. It takes float32 only: its bf16 products are
// slower than own ones, also by AMX (longhaul bench kernels --all-paths; oneDNN 2.6.3 takes 1.6 to
// 2.6 times as long there, docs/benchmarks/kernels_amx.md).
LinearPath linear_path(std::int64_t n_rows, DType weight_dtype) {
  if (weight_dtype == DType::kI8) return LinearPath::kInt8;
  if (weight_dtype == DType::kBf16 && has_linear_amx()) {
    return n_rows <= kFewRowsAmx ? LinearPath::kFewRowsAmx : LinearPath::kTiledAmx;
  }
  const bool few = n_rows <= kFewRows;
  if (weight_dtype == DType::kBf16 && has_linear_pairs() && bf16_pairs()) {
    return few ? LinearPath::kFewRowsOfPairs : LinearPath::kTiledPairs;
  }
  if (few) return LinearPath::kFewRows;
  const bool by_onednn =
      onednn::in_build() && weight_dtype == DType::kF32 && active_isa() == supported_isas().back();
  return by_onednn ? LinearPath::kOneDnn : LinearPath::kTiled;
}

void linear_by(LinearPath path, const LinearArgs& args) {
  check(args);
  const bool by_pairs = path == LinearPath::kFewRowsOfPairs || path == LinearPath::kTiledPairs;
  require(!by_pairs || (is_bf16(args) && has_linear_pairs()),
          "linear: the paths of pairs take bf16 weights and need VDPBF16PS");
  const bool by_amx = path == LinearPath::kFewRowsAmx || path == LinearPath::kTiledAmx;
  require(!by_amx || (is_bf16(args) && has_linear_amx()),
          "linear: the paths of AMX take bf16 weights and need AMX");
  require((path == LinearPath::kInt8) == (args.weight.dtype == DType::kI8),
          "linear: int8 weights and no others go by the path int8");
  if (args.x.dim(0) == 0 || args.weight.n_out == 0) return;
  switch (path) {
    case LinearPath::kFewRows:
      return few_rows_linear(args);
    case LinearPath::kTiled:
      return tiled_linear(args);
    case LinearPath::kFewRowsOfPairs:
      return few_rows_of_pairs_linear(args);
    case LinearPath::kTiledPairs:
      return pairs_linear(args, cpu::kPairChunk, cpu::kPairTaskRows, cpu::kPairOutputs,
                          cpu::kernels().pair_linear);
    case LinearPath::kFewRowsAmx:
      return amx_few_rows_linear(args);
    case LinearPath::kTiledAmx:
      return amx_tiled_linear(args);
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
