// kv_close: a thread block takes K or V of a block. Its threads first find scales and minima, one
// group each, then write whole words. Blocks are closed once, so nothing here is in a hurry.
#include <vector>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

struct CloseShape {
  std::int64_t block_size;
  std::int64_t head_dim;
  PartRef k;
  PartRef v;
  bool operator==(const CloseShape&) const = default;
};

// K or V of one block, open and closed.
struct Side {
  PartRef part;
  bool is_k;
  std::int64_t block_size;
  std::int64_t head_dim;
  const float* open;  // K [head_dim, block_size], V [block_size, head_dim]
  std::byte* closed;

  __device__ std::int64_t at(std::int64_t token, std::int64_t dim) const {
    return is_k ? dim * block_size + token : token * head_dim + dim;
  }
  // Which scale and minimum (kernels/kv_quantise.h).
  __device__ std::int64_t range(std::int64_t token, std::int64_t dim) const {
    if (!holds_groups(part.type)) return token;
    return is_k ? token / kKvGroup * head_dim + dim : dim / kKvGroup * block_size + token;
  }
  __device__ std::uint16_t* scales() const {
    return reinterpret_cast<std::uint16_t*>(closed + part.scales_at);
  }
  __device__ std::uint16_t* minima() const {
    return reinterpret_cast<std::uint16_t*>(closed + part.minima_at);
  }
};

// Of n values, `stride` apart.
__device__ CodeRange range_of_values(KvType type, const float* x, std::int64_t stride,
                                     std::int64_t n) {
  float smallest = x[0];
  float largest = x[0];
  bool finite = true;
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = x[i * stride];
    smallest = value < smallest ? value : smallest;
    largest = value > largest ? value : largest;
    finite = finite && value - value == 0.0F;
  }
  if (!finite) return {kNanRange, kNanRange, false};
  return holds_groups(type) ? group_range(type, smallest, largest)
                            : token_range(type, smallest, largest);
}

__device__ void write_ranges(const Side& side) {
  if (!holds_codes(side.part.type) && !holds_groups(side.part.type)) return;
  const bool in_groups = holds_groups(side.part.type);
  // Of groups each begins at a multiple of kKvGroup tokens of a dim, or dims of a token, which are
  // neighbours; else there is one for all dims of a token.
  const std::int64_t n = in_groups ? side.block_size * side.head_dim / kKvGroup : side.block_size;
  const std::int64_t stride = in_groups || !side.is_k ? 1 : side.block_size;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const std::int64_t first = in_groups ? i * kKvGroup : side.at(i, 0);
    const std::int64_t line = side.is_k ? side.block_size : side.head_dim;
    const std::int64_t along = first % line;
    const std::int64_t across = first / line;
    const std::int64_t range = !in_groups  ? i
                               : side.is_k ? side.range(along, across)
                                           : side.range(across, along);
    const CodeRange of_values = range_of_values(side.part.type, side.open + first, stride,
                                                in_groups ? std::int64_t{kKvGroup} : side.head_dim);
    side.scales()[range] = of_values.scale;
    if (has_minimum(side.part.type)) side.minima()[range] = of_values.minimum;
  }
}

// Bits of one value of a word.
__device__ std::uint32_t bits_of(const Side& side, std::int64_t token, std::int64_t dim) {
  const float value = side.open[side.at(token, dim)];
  if (side.part.type == KvType::kF32) return __float_as_uint(value);
  if (side.part.type == KvType::kBf16) return bf16_pair(value, 0.0F);
  const std::int64_t range = side.range(token, dim);
  const std::uint16_t scale = side.scales()[range];
  const std::uint16_t minimum =
      has_minimum(side.part.type) ? side.minima()[range] : std::uint16_t{0};
  return code_of(side.part.type, value, {scale, minimum, scale != kNanRange});
}

__device__ void write_words(const Side& side) {
  const int lanes = lanes_of(side.part.type);
  auto* words = reinterpret_cast<std::uint32_t*>(side.closed + side.part.at);
  const std::int64_t width = side.is_k ? side.block_size : side.head_dim;
  const std::int64_t n_words = side.block_size * side.head_dim / lanes;
  for (std::int64_t i = threadIdx.x; i < n_words; i += kThreads) {
    std::uint32_t word = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t across = i / width * lanes + lane;
      const std::uint32_t bits =
          side.is_k ? bits_of(side, i % width, across) : bits_of(side, across, i % width);
      word |= bits << static_cast<unsigned>(lane_shift(lanes, lane));
    }
    words[i] = word;
  }
}

// grid.x is the item (without a block: nothing), grid.y 0 for K and 1 for V.
__global__ void kv_close_kernel(CloseShape shape, const KvCloseItem* items) {
  const KvCloseItem item = items[blockIdx.x];
  if (item.closed == nullptr) return;
  const bool is_k = blockIdx.y == 0;
  if (is_k && threadIdx.x == 0 && item.entry != nullptr) *item.entry = item.closed;
  const auto* open = reinterpret_cast<const float*>(item.open);
  const Side side = {.part = is_k ? shape.k : shape.v,
                     .is_k = is_k,
                     .block_size = shape.block_size,
                     .head_dim = shape.head_dim,
                     .open = is_k ? open : open + shape.block_size * shape.head_dim,
                     .closed = item.closed};
  write_ranges(side);
  __syncthreads();  // all scales and minima are written before codes are made with them
  write_words(side);
}

}  // namespace

void kv_close(Stream& stream, const KvCloseArgs& args) {
  if (args.items.empty()) return;
  Parcel parcel;
  const std::size_t at = parcel.add(std::vector(args.items.begin(), args.items.end()));
  const std::byte* base = stream.upload(parcel.bytes());
  const CloseShape shape = {.block_size = args.shape.block_size,
                            .head_dim = args.shape.head_dim,
                            .k = k_part(args.shape),
                            .v = v_part(args.shape)};
  launch(stream, "kv_close", kv_close_kernel,
         {.x = static_cast<std::int64_t>(with_room(args.items.size())), .y = 2, .block = kThreads},
         shape, part<KvCloseItem>(base, at));
}

}  // namespace longhaul::cuda
