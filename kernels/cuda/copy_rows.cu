// copy_rows: items along y, the words of an item along x; neighbours copy neighbours.
#include <algorithm>

#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr std::size_t kBytesPerBlock = 16U << 10U;  // of the largest item
constexpr std::size_t kMostBlocksOfItem = 1024;     // then threads take several words

static_assert(sizeof(CopyRowsItem) == kCopyRowsBytes);

struct alignas(16) Words {
  std::uint32_t words[4];
};

template <typename Word>
__device__ void copy_item(const CopyRowsItem& item) {
  const std::size_t row_words = item.row_bytes / sizeof(Word);
  const std::size_t n_words = row_words * static_cast<std::size_t>(item.n_rows);
  const std::size_t n_threads = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < n_words;
       i += n_threads) {
    const std::size_t row = i / row_words;
    const std::size_t word = i % row_words;
    reinterpret_cast<Word*>(item.to + row * item.to_stride)[word] =
        reinterpret_cast<const Word*>(item.from + row * item.from_stride)[word];
  }
}

__global__ void copy_rows_kernel(const CopyRowsItem* items) {
  const CopyRowsItem item = items[blockIdx.y];
  const std::size_t bits = reinterpret_cast<std::size_t>(item.to) |
                           reinterpret_cast<std::size_t>(item.from) | item.to_stride |
                           item.from_stride | item.row_bytes;
  if (bits % sizeof(Words) == 0) {
    copy_item<Words>(item);
  } else {
    copy_item<std::uint32_t>(item);
  }
}

void check(const CopyRowsItem& item) {
  const std::size_t bits = reinterpret_cast<std::size_t>(item.to) |
                           reinterpret_cast<std::size_t>(item.from) | item.to_stride |
                           item.from_stride | item.row_bytes;
  require(bits % sizeof(std::uint32_t) == 0, "copy_rows: not whole words of 4 bytes");
}

}  // namespace

void copy_rows(Stream& stream, std::span<const CopyRowsItem> items) {
  while (!items.empty()) {
    const std::span<const CopyRowsItem> some =
        items.first(std::min(items.size(), std::size_t{kMostGridRows}));
    items = items.subspan(some.size());
    std::size_t largest = 0;
    for (const CopyRowsItem& item : some) {
      check(item);
      largest = std::max(largest, item.row_bytes * static_cast<std::size_t>(item.n_rows));
    }
    if (largest == 0) continue;
    const std::size_t n_blocks =
        std::min(kMostBlocksOfItem, (largest + kBytesPerBlock - 1) / kBytesPerBlock);
    const auto* there = reinterpret_cast<const CopyRowsItem*>(stream.upload(std::as_bytes(some)));
    launch(stream, "copy_rows", copy_rows_kernel,
           {.x = static_cast<std::int64_t>(n_blocks),
            .y = static_cast<std::int64_t>(some.size()),
            .block = kThreads},
           there);
  }
}

}  // namespace longhaul::cuda
