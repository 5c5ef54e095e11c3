// The ways in which a CPU computes linear(), for tests and benchmarks; linear() picks one.
#pragma once
#include <cstdint>
#include <string_view>

#include "kernels/linear.h"

namespace longhaul {

enum class LinearPath {
  kFewRows,         // own, for few rows: reads the weights once, at the speed of memory
  kTiled,           // own, any number of rows
  kFewRowsOfPairs,  // the same two for bf16 weights, by VDPBF16PS
  kTiledPairs,
  kFewRowsAmx,  // and by AMX
  kTiledAmx,
  kOneDnn,      // oneDNN's matmul, when it is in the build
  kInt8,        // own, for int8 weights and any number of rows
  kInt4,        // the same for int4
  kFewRowsFp8,  // own, for fp8 weights: few rows
  kTiledFp8     // and any number, as f32 weights once widened
};

std::string_view name_of(LinearPath path);
// Whether the active instruction set has the paths of pairs.
bool has_linear_pairs();
// Whether it has the paths of AMX.
bool has_linear_amx();
// The path that linear() takes for this many rows, with the active instruction set and build. In an
// order other than kFastest it is the same for any number of rows.
LinearPath linear_path(std::int64_t n_rows, DType weight_dtype,
                       SumOrder order = SumOrder::kFastest);
// linear() on the CPU by the given path; throws kInvalidArgument where the weights or the active
// instruction set do not allow it. The shapes are those that linear() has checked, or would accept.
void linear_by(LinearPath path, const LinearArgs& args);

}  // namespace longhaul
