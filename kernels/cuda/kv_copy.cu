// kv_copy: a thread block for each item; threads write whole words of the target.

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

struct CopyShape {
  std::int64_t block_size;
  std::int64_t head_dim;
  std::int64_t n_words;  // of a whole block, scales and minima included
  PartRef k;
  PartRef v;
  bool operator==(const CopyShape&) const = default;
};

__device__ void copy_k(const CopyShape& shape, const KvCopyItem& item) {
  const int lanes = lanes_of(shape.k.type);
  const auto* from = reinterpret_cast<const std::uint32_t*>(item.from + shape.k.at);
  auto* to = reinterpret_cast<std::uint32_t*>(item.to + shape.k.at);
  for (std::int64_t i = threadIdx.x; i < shape.head_dim / lanes * item.n_tokens; i += kThreads) {
    const std::int64_t row = i / item.n_tokens * shape.block_size;
    const std::int64_t token = i % item.n_tokens;
    to[row + item.to_slot + token] = from[row + item.from_slot + token];
  }
}

__device__ void copy_v(const CopyShape& shape, const KvCopyItem& item) {
  const int lanes = lanes_of(shape.v.type);
  const auto* from = reinterpret_cast<const std::uint32_t*>(item.from + shape.v.at);
  auto* to = reinterpret_cast<std::uint32_t*>(item.to + shape.v.at);
  const std::int64_t first_row = item.to_slot / lanes;
  const std::int64_t end_row = (item.to_slot + item.n_tokens + lanes - 1) / lanes;
  for (std::int64_t i = threadIdx.x; i < (end_row - first_row) * shape.head_dim; i += kThreads) {
    const std::int64_t row = first_row + i / shape.head_dim;
    const std::int64_t d = i % shape.head_dim;
    std::uint32_t word = 0;
    std::uint32_t ours = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t token = row * lanes + lane - item.to_slot;
      if (token < 0 || token >= item.n_tokens) continue;
      const std::int64_t slot = item.from_slot + token;
      const auto shift = static_cast<unsigned>(lane_shift(lanes, lane));
      word |=
          lane_bits(lanes, from[slot / lanes * shape.head_dim + d], static_cast<int>(slot % lanes))
          << shift;
      ours |= lane_mask(lanes) << shift;
    }
    std::uint32_t* at = to + row * shape.head_dim + d;
    *at = ours == 0xffffffffU ? word : (*at & ~ours) | word;
  }
}

__device__ void copy_ranges(const PartRef& part, const KvCopyItem& item) {
  if (!holds_codes(part.type)) return;
  const std::int64_t n = has_minimum(part.type) ? 2 * item.n_tokens : item.n_tokens;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const std::int64_t at = i < item.n_tokens ? part.scales_at : part.minima_at;
    const std::int64_t token = i % item.n_tokens;
    reinterpret_cast<std::uint16_t*>(item.to + at)[item.to_slot + token] =
        reinterpret_cast<const std::uint16_t*>(item.from + at)[item.from_slot + token];
  }
}

__global__ void kv_copy_kernel(CopyShape shape, const KvCopyItem* items) {
  const KvCopyItem item = items[blockIdx.x];
  if (item.n_tokens == shape.block_size) {  // then both slots are 0
    const auto* from = reinterpret_cast<const std::uint32_t*>(item.from);
    auto* to = reinterpret_cast<std::uint32_t*>(item.to);
    for (std::int64_t i = threadIdx.x; i < shape.n_words; i += kThreads) to[i] = from[i];
    return;
  }
  if (item.n_tokens == 0) return;
  copy_k(shape, item);
  copy_v(shape, item);
  copy_ranges(shape.k, item);
  copy_ranges(shape.v, item);
}

}  // namespace

void kv_copy(Stream& stream, const KvCopyArgs& args) {
  if (args.items.empty()) return;
  const auto* items = reinterpret_cast<const KvCopyItem*>(stream.upload(std::as_bytes(args.items)));
  const CopyShape shape = {.block_size = args.shape.block_size,
                           .head_dim = args.shape.head_dim,
                           .n_words = static_cast<std::int64_t>(args.shape.bytes() / 4),
                           .k = k_part(args.shape),
                           .v = v_part(args.shape)};
  launch(stream, "kv_copy", kv_copy_kernel,
         {.x = static_cast<std::int64_t>(args.items.size()), .block = kThreads}, shape, items);
}

}  // namespace longhaul::cuda
