// What the keys of a page can give a query at most: channel by channel the smallest and the largest
// value among them, and the sum over channels of the larger product (Quest, Tang et al. 2024, arXiv
// 2406.10774, section 3.3). No key of the page has a larger product with the query. The same bits
// on every device and for any number of threads: products are summed along head_dim in order.
//
// Bounds lie in tiles (base/bound_tile.h). Of a channel a query reads one of the two rows: which
// one, its sign says.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bound_tile.h"
#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Keys of one page: those in these slots of a block. `is_new`: the page in this lane of the tile
// had no keys before.
struct WidenBoundsItem {
  const std::byte* block = nullptr;
  Extent slots;
  float* tile = nullptr;  // bound_tile_floats(head_dim), of the device
  std::int64_t lane = 0;
  bool is_new = false;
};
struct WidenBoundsArgs {
  KvBlockShape shape;
  std::span<const WidenBoundsItem> items;  // distinct pages
};
void widen_bounds(StreamRef stream, const WidenBoundsArgs& args);

// Queries of one group with every page of every tile. Queries and tiles are the device's, bounds
// are host memory: the call waits for the stream's work.
struct PageBoundItem {
  std::span<const float> q;  // [n_queries, head_dim], after RoPE
  std::int64_t head_dim = 0;
  std::span<const float* const> tiles;  // [n_tiles]; the list is host memory
  std::span<float> bounds;  // [n_queries, n_tiles, kBoundPages]; of lanes without keys no number
};
void bound_products(StreamRef stream, std::span<const PageBoundItem> items);

// The pages of one query with the highest bounds, of equal bounds the earlier ones.
struct BestPagesItem {
  std::span<const float> bounds;  // [n_pages]
  std::int64_t besides = -1;      // a page that is not asked about, or -1
  std::span<std::int32_t> best;   // result, in no order; no longer than there are pages to choose
};
// Host memory on every device.
void best_pages(std::span<const BestPagesItem> items);

}  // namespace longhaul
