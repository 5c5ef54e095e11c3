#include "kernels/cpu/linear_paths.h"

#include "kernels/cpu/amx_linear.h"
#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/float_linear.h"
#include "kernels/cpu/fp8_linear.h"
#include "kernels/cpu/int4_linear.h"
#include "kernels/cpu/int8_linear.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/onednn.h"
#include "kernels/operators.h"

namespace longhaul {
namespace {

// From about 30 rows on packing the weights pays (longhaul bench kernels --all-paths).
constexpr std::int64_t kFewRows = 24;
// With AMX copying the weights pays later: so many rows' sums fit its registers, and 16 rows of
// weights stream from memory as they are.
constexpr std::int64_t kFewRowsAmx = 64;

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
    case LinearPath::kInt4:
      return "int4";
    case LinearPath::kFewRowsFp8:
      return "few_rows_fp8";
    case LinearPath::kTiledFp8:
      return "tiled_fp8";
  }
  return "unknown";
}

bool has_linear_amx() { return cpu::kernels().amx_linear != nullptr; }
bool has_linear_pairs() { return cpu::kernels().pair_linear != nullptr; }

// oneDNN picks instructions by itself, so it serves only while the machine's best set is active:
// LONGHAUL_ISA=baseline then really runs without AVX. It takes float32 only: its bf16 products are
// slower than own ones, also by AMX (longhaul bench kernels --all-paths; oneDNN 2.6.3 takes 1.6 to
// 2.6 times as long there, docs/benchmarks/kernels_amx.md).
// Whether its rows depend on each other is not ours to know, so it serves kFastest only.
LinearPath linear_path(std::int64_t n_rows, DType weight_dtype, SumOrder order) {
  const auto is_few = [&](std::int64_t most) {
    return order == SumOrder::kFastest ? n_rows <= most : order == SumOrder::kOfFewRows;
  };
  if (weight_dtype == DType::kI8) return LinearPath::kInt8;
  if (weight_dtype == DType::kI4) return LinearPath::kInt4;
  if (weight_dtype == DType::kBf16 && has_linear_amx()) {
    return is_few(kFewRowsAmx) ? LinearPath::kFewRowsAmx : LinearPath::kTiledAmx;
  }
  const bool few = is_few(kFewRows);
  if (weight_dtype == DType::kF8E4m3) return few ? LinearPath::kFewRowsFp8 : LinearPath::kTiledFp8;
  if (weight_dtype == DType::kBf16 && has_linear_pairs() && bf16_pairs()) {
    return few ? LinearPath::kFewRowsOfPairs : LinearPath::kTiledPairs;
  }
  if (few) return LinearPath::kFewRows;
  const bool by_onednn = order == SumOrder::kFastest && onednn::in_build() &&
                         weight_dtype == DType::kF32 && active_isa() == supported_isas().back();
  return by_onednn ? LinearPath::kOneDnn : LinearPath::kTiled;
}

void linear_by(LinearPath path, const LinearArgs& args) {
  const bool is_bf16 = args.weight.dtype == DType::kBf16;
  const bool by_pairs = path == LinearPath::kFewRowsOfPairs || path == LinearPath::kTiledPairs;
  require(!by_pairs || (is_bf16 && has_linear_pairs()),
          "linear: the paths of pairs take bf16 weights and need VDPBF16PS");
  const bool by_amx = path == LinearPath::kFewRowsAmx || path == LinearPath::kTiledAmx;
  require(!by_amx || (is_bf16 && has_linear_amx()),
          "linear: the paths of AMX take bf16 weights and need AMX");
  require((path == LinearPath::kInt8) == (args.weight.dtype == DType::kI8),
          "linear: int8 weights and no others go by the path int8");
  require((path == LinearPath::kInt4) == (args.weight.dtype == DType::kI4),
          "linear: int4 weights and no others go by the path int4");
  const bool by_fp8 = path == LinearPath::kFewRowsFp8 || path == LinearPath::kTiledFp8;
  require(by_fp8 == (args.weight.dtype == DType::kF8E4m3),
          "linear: fp8 weights and no others go by the paths of fp8");
  if (args.x.dim(0) == 0 || args.weight.n_out == 0) return;
  switch (path) {
    case LinearPath::kFewRows:
      return few_rows_linear(args);
    case LinearPath::kTiled:
      return tiled_linear(args);
    case LinearPath::kFewRowsOfPairs:
      return few_rows_of_pairs_linear(args);
    case LinearPath::kTiledPairs:
      return tiled_pairs_linear(args);
    case LinearPath::kFewRowsAmx:
      return amx_few_rows_linear(args);
    case LinearPath::kTiledAmx:
      return amx_tiled_linear(args);
    case LinearPath::kOneDnn:
      return onednn::linear(args);
    case LinearPath::kInt8:
      return int8_linear(args);
    case LinearPath::kInt4:
      return int4_linear(args);
    case LinearPath::kFewRowsFp8:
      return few_rows_fp8_linear(args);
    case LinearPath::kTiledFp8:
      return tiled_fp8_linear(args);
  }
}

void cpu::linear(const LinearArgs& args) {
  linear_by(linear_path(args.x.dim(0), args.weight.dtype, args.order), args);
}

}  // namespace longhaul
