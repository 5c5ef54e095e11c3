#include "kernels/copy_rows.h"

#include "kernels/operators.h"

namespace longhaul {

void copy_rows(StreamRef stream, std::span<const CopyRowsItem> items) {
  run_on(stream, cpu::copy_rows, cuda::copy_rows, items);
}

}  // namespace longhaul
