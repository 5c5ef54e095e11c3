#include "kernels/swiglu.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const SwigluArgs& args) {
  require_equal("swiglu", "n_tokens of up", args.up.dim(0), args.gate.dim(0));
  require_equal("swiglu", "d_ff of up", args.up.dim(1), args.gate.dim(1));
  require_equal("swiglu", "n_tokens of out", args.out.dim(0), args.gate.dim(0));
  require_equal("swiglu", "d_ff of out", args.out.dim(1), args.gate.dim(1));
}

// Rows are cut too: in decode there is one long row.
void swiglu_cpu(const SwigluArgs& args) {
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t n_pieces = ceil_div(args.gate.dim(1), kPiece);
  parallel_rows(args.gate.dim(0) * n_pieces, kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / n_pieces;
      const std::int64_t column = i % n_pieces * kPiece;
      cpu::kernels().swiglu({.gate = args.gate[row].data() + column,
                             .up = args.up[row].data() + column,
                             .out = args.out[row].data() + column,
                             .n = std::min(kPiece, args.gate.dim(1) - column)});
    }
  });
}

}  // namespace

void swiglu(StreamRef stream, const SwigluArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return swiglu_cpu(args);
    case Device::kCuda:
      return cuda::swiglu(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
