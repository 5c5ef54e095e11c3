#include "kernels/page_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/kv_block_check.h"
#include "kernels/read_keys.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

constexpr auto kPages = static_cast<std::size_t>(kBoundPages);
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void bound_tile(std::span<const float> q, const float* tile, float* bounds) {
  std::array<float, kPages> sums{};
  for (std::size_t d = 0; d < q.size(); ++d) {
    const float* row = tile + (2 * d + (q[d] < 0 ? 0 : 1)) * kPages;
    for (std::size_t page = 0; page < kPages; ++page) sums[page] += q[d] * row[page];
  }
  std::copy(sums.begin(), sums.end(), bounds);
}

}  // namespace

void clear_bounds(std::int64_t lane, std::span<float> tile) {
  float* value = tile.data() + lane;
  for (std::size_t row = 0; row < tile.size() / kPages; ++row, value += kPages)
    *value = row % 2 == 0 ? kInfinity : -kInfinity;
}

void widen_bounds(const KvBlockShape& shape, const std::byte* block, Extent slots,
                  std::int64_t lane, std::span<float> tile) {
  check_kv_block_shape("widen_bounds", shape);
  require_equal("widen_bounds", "floats of the tile", static_cast<std::int64_t>(tile.size()),
                static_cast<std::int64_t>(bound_tile_floats(shape.head_dim)));
  if (slots.empty()) return;
  std::vector<float> keys(static_cast<std::size_t>(slots.size()));
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    read_key_dim(shape, block, d, slots, keys);
    const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
    float* row = tile.data() + 2 * d * kBoundPages + lane;
    row[0] = std::min(row[0], *least);
    row[kBoundPages] = std::max(row[kBoundPages], *most);
  }
}

void bound_products(std::span<const PageBoundItem> items) {
  struct Task {
    const PageBoundItem* item;
    std::size_t tile;
  };
  std::vector<Task> tasks;
  for (const PageBoundItem& item : items) {
    require_equal("bound_products", "bounds", static_cast<std::int64_t>(item.bounds.size()),
                  static_cast<std::int64_t>(item.tiles.size() * kPages));
    for (std::size_t tile = 0; tile < item.tiles.size(); ++tile) tasks.push_back({&item, tile});
  }
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    const auto& [item, tile] = tasks[static_cast<std::size_t>(i)];
    bound_tile(item->q, item->tiles[tile], item->bounds.data() + tile * kPages);
  });
}

}  // namespace longhaul
