#include "kernels/sum_rows.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const SumRowsArgs& args) {
  require_equal("sum_rows", "n of sum", args.sum.dim(0), args.rows.dim(1));
  require(args.rows.dim(0) >= 1, "sum_rows: there are no rows");
  require(args.rows.is_contiguous() && args.sum.is_contiguous(),
          "sum_rows: rows and sum must be contiguous");
}

}  // namespace

void sum_rows(StreamRef stream, const SumRowsArgs& args) {
  check(args);
  run_on(stream, cpu::sum_rows, cuda::sum_rows, args);
}

}  // namespace longhaul
