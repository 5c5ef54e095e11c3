#include "kernels/kv_copy.h"

#include <cstring>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/cuda_absent.h"
#include "kernels/kv_block_check.h"
#include "kernels/parallel.h"

namespace longhaul {
namespace {

void check(const KvCopyArgs& args) {
  check_kv_block_shape("kv_copy", args.shape);
  for (const KvCopyItem& item : args.items) {
    require(item.from != nullptr && item.to != nullptr && item.from_slot >= 0 &&
                item.to_slot >= 0 && item.n_tokens >= 0 &&
                item.from_slot + item.n_tokens <= args.shape.block_size &&
                item.to_slot + item.n_tokens <= args.shape.block_size,
            fmt::format("kv_copy: {} tokens from slot {} to slot {} of blocks of {}", item.n_tokens,
                        item.from_slot, item.to_slot, args.shape.block_size));
  }
}

bool copies_whole_block(const KvBlockShape& shape, const KvCopyItem& item) {
  return item.from_slot == 0 && item.to_slot == 0 && item.n_tokens == shape.block_size;
}

std::size_t lanes_of(DType dtype) { return dtype == DType::kBf16 ? 2 : 1; }

// K is [head_dim / lanes, block_size, lanes]: the slots of a row are neighbours.
void copy_k(const KvBlockShape& shape, const KvCopyItem& item) {
  const std::size_t slot_bytes = lanes_of(shape.k_dtype) * size_of(shape.k_dtype);
  const auto n_rows = static_cast<std::size_t>(shape.head_dim) / lanes_of(shape.k_dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(shape.block_size) * slot_bytes;
  for (std::size_t row = 0; row < n_rows; ++row) {
    std::memcpy(item.to + row * row_bytes + static_cast<std::size_t>(item.to_slot) * slot_bytes,
                item.from + row * row_bytes + static_cast<std::size_t>(item.from_slot) * slot_bytes,
                static_cast<std::size_t>(item.n_tokens) * slot_bytes);
  }
}

// V is [block_size / lanes, head_dim, lanes]: a slot is every lanes-th element of a row.
void copy_v(const KvBlockShape& shape, const KvCopyItem& item) {
  const std::size_t lanes = lanes_of(shape.v_dtype);
  const std::size_t width = size_of(shape.v_dtype);
  const auto head_dim = static_cast<std::size_t>(shape.head_dim);
  const auto first_of = [&](std::int64_t slot) {
    const auto s = static_cast<std::size_t>(slot);
    return shape.k_bytes() + (s / lanes * head_dim * lanes + s % lanes) * width;
  };
  for (std::int64_t token = 0; token < item.n_tokens; ++token) {
    const std::byte* from = item.from + first_of(item.from_slot + token);
    std::byte* to = item.to + first_of(item.to_slot + token);
    for (std::size_t d = 0; d < head_dim; ++d) {
      std::memcpy(to + d * lanes * width, from + d * lanes * width, width);
    }
  }
}

void copy_item(const KvBlockShape& shape, const KvCopyItem& item) {
  if (copies_whole_block(shape, item)) {
    std::memcpy(item.to, item.from, shape.bytes());
    return;
  }
  copy_k(shape, item);
  copy_v(shape, item);
}

void kv_copy_cpu(const KvCopyArgs& args) {
  parallel_rows(static_cast<std::int64_t>(args.items.size()),
                2 * args.shape.block_size * args.shape.head_dim,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    copy_item(args.shape, args.items[static_cast<std::size_t>(i)]);
                  }
                });
}

}  // namespace

void kv_copy(StreamRef stream, const KvCopyArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return kv_copy_cpu(args);
    case Device::kCuda:
      cuda_absent("kv_copy");
  }
}

}  // namespace longhaul
