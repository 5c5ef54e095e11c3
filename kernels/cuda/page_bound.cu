// widen_bounds and bound_products: a thread for each dimension of a page, and for each page of a
// query. Rounded as CPUs round, so that bounds are theirs bit for bit.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/device/gpu_memory.h"
#include "base/ids.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/key_values.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

static_assert(sizeof(WidenBoundsItem) == kWidenedPageBytes);
constexpr int kTilesOfBlock = kChoiceThreads / static_cast<int>(kBoundPages);

// grid.x is the item.
__global__ void widen_bounds_kernel(KeyPart k, const WidenBoundsItem* items) {
  const WidenBoundsItem item = items[blockIdx.x];
  for (std::int64_t d = threadIdx.x; d < k.head_dim; d += kChoiceThreads) {
    float* row = item.tile + 2 * d * kBoundPages + item.lane;
    float least = key_value(k, item.block, d, item.slots.begin);
    float most = least;
    for (std::int64_t slot = item.slots.begin + 1; slot < item.slots.end; ++slot) {
      const float key = key_value(k, item.block, d, slot);
      least = Smaller()(key, least);
      most = Larger()(key, most);
    }
    row[0] = item.is_new ? least : Smaller()(least, row[0]);
    row[kBoundPages] = item.is_new ? most : Larger()(most, row[kBoundPages]);
  }
}

struct Group {
  const float* q;  // [n_queries, head_dim]
  std::int64_t n_queries;
  std::int64_t head_dim;
  std::int64_t tiles_at;
  std::int64_t n_tiles;
  std::int64_t bounds_at;  // of [n_queries, n_tiles, kBoundPages]
};
static_assert(sizeof(Group) == kPageGroupBytes);

// grid.x is kTilesOfBlock tiles of the group grid.y; a thread has one page of them.
__global__ void bound_products_kernel(const Group* groups, const float* const* tiles,
                                      float* bounds) {
  const Group group = groups[blockIdx.y];
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTilesOfBlock +
                            static_cast<std::int64_t>(threadIdx.x) / kBoundPages;
  if (tile >= group.n_tiles) return;
  const std::int64_t lane = static_cast<std::int64_t>(threadIdx.x) % kBoundPages;
  const float* page = tiles[group.tiles_at + tile] + lane;
  for (std::int64_t query = 0; query < group.n_queries; ++query) {
    const float* q = group.q + query * group.head_dim;
    float sum = 0.0F;
    for (std::int64_t d = 0; d < group.head_dim; ++d) {
      const float bound = page[(2 * d + (q[d] < 0.0F ? 0 : 1)) * kBoundPages];
      sum = rounded_sum(sum, rounded_product(q[d], bound));
    }
    bounds[group.bounds_at + (query * group.n_tiles + tile) * kBoundPages + lane] = sum;
  }
}

}  // namespace

void widen_bounds(Stream& stream, const WidenBoundsArgs& args) {
  std::vector<WidenBoundsItem> items;
  for (const WidenBoundsItem& item : args.items) {
    if (!item.slots.empty()) items.push_back(item);
  }
  const std::byte* there = stream.upload(std::as_bytes(std::span(items)));
  launch(stream, "widen_bounds", widen_bounds_kernel,
         {.x = static_cast<std::int64_t>(items.size()), .block = kChoiceThreads},
         key_part(args.shape), reinterpret_cast<const WidenBoundsItem*>(there));
}

void bound_products(Stream& stream, std::span<const PageBoundItem> items) {
  std::vector<Group> groups;
  std::vector<const float*> tiles;
  std::int64_t n_bounds = 0;
  std::int64_t most_tiles = 0;
  for (const PageBoundItem& item : items) {
    const auto n_tiles = static_cast<std::int64_t>(item.tiles.size());
    groups.push_back({.q = item.q.data(),
                      .n_queries = static_cast<std::int64_t>(item.q.size()) / item.head_dim,
                      .head_dim = item.head_dim,
                      .tiles_at = static_cast<std::int64_t>(tiles.size()),
                      .n_tiles = n_tiles,
                      .bounds_at = n_bounds});
    tiles.insert(tiles.end(), item.tiles.begin(), item.tiles.end());
    n_bounds += static_cast<std::int64_t>(item.bounds.size());
    most_tiles = std::max(most_tiles, n_tiles);
  }
  if (n_bounds == 0) return;
  Parcel parcel;
  const std::size_t groups_at = parcel.add(groups);
  const std::size_t tiles_at = parcel.add(tiles);
  const std::byte* base = stream.upload(parcel.bytes());
  const std::size_t n_bytes = static_cast<std::size_t>(n_bounds) * sizeof(float);
  std::byte* bounds = stream.scratch(n_bytes);
  launch(stream, "bound_products", bound_products_kernel,
         {.x = ceil_div(most_tiles, kTilesOfBlock),
          .y = static_cast<std::int64_t>(groups.size()),
          .block = kChoiceThreads},
         part<Group>(base, groups_at), part<const float*>(base, tiles_at),
         reinterpret_cast<float*>(bounds));
  const std::byte* from = stream.download(bounds, n_bytes);
  for (const PageBoundItem& item : items) {
    if (item.bounds.empty()) continue;
    std::memcpy(item.bounds.data(), from, item.bounds.size_bytes());
    from += item.bounds.size_bytes();
  }
}

}  // namespace longhaul::cuda
