// Copies rows of bytes from one place to another on a stream's device: packing and unpacking what
// travels between ranks. Local.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/device/device.h"

namespace longhaul {

// Row i of n_rows moves from `from + i * from_stride` to `to + i * to_stride`.
struct CopyRowsItem {
  std::byte* to = nullptr;
  std::size_t to_stride = 0;  // bytes, as all others
  const std::byte* from = nullptr;
  std::size_t from_stride = 0;  // 0: the same row again and again
  std::size_t row_bytes = 0;
  std::int64_t n_rows = 1;
};

// All at once; no target overlaps another or a source. On GPUs addresses, strides and rows are
// whole words of 4 bytes.
void copy_rows(StreamRef stream, std::span<const CopyRowsItem> items);

}  // namespace longhaul
