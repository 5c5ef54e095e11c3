#include "kernels/read_all.h"

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/operators.h"

namespace longhaul {

void read_all(StreamRef stream, const ReadAllArgs& args) {
  require(args.n_bytes % 16 == 0,
          fmt::format("read_all: {} bytes, must be a multiple of 16", args.n_bytes));
  run_on(stream, cpu::read_all, cuda::read_all, args);
}

}  // namespace longhaul
