#include "kernels/copy_rows.h"

#include <cstring>

namespace longhaul {
namespace {

void copy_rows_cpu(std::span<const CopyRowsItem> items) {
  for (const CopyRowsItem& item : items) {
    if (item.row_bytes == 0) continue;
    for (std::int64_t row = 0; row < item.n_rows; ++row) {
      const auto i = static_cast<std::size_t>(row);
      std::memcpy(item.to + i * item.to_stride, item.from + i * item.from_stride, item.row_bytes);
    }
  }
}

}  // namespace

void copy_rows(StreamRef stream, std::span<const CopyRowsItem> items) {
  switch (stream.device()) {
    case Device::kCpu:
      return copy_rows_cpu(items);
    case Device::kCuda:
      return cuda::copy_rows(stream.cuda_stream(), items);
  }
}

}  // namespace longhaul
