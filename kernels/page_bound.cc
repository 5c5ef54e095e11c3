#include "kernels/page_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kv_block_check.h"
#include "kernels/read_keys.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

constexpr auto kPages = static_cast<std::size_t>(kBoundPages);
constexpr std::size_t kTilesOfTask = 8;  // 128 KiB with heads of 128 dimensions
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
    std::size_t first_tile;
  };
  std::vector<Task> tasks;
  for (const PageBoundItem& item : items) {
    const std::int64_t n_queries = static_cast<std::int64_t>(item.q.size()) / item.head_dim;
    require_equal("bound_products", "bounds", static_cast<std::int64_t>(item.bounds.size()),
                  n_queries * static_cast<std::int64_t>(item.tiles.size() * kPages));
    for (std::size_t tile = 0; tile < item.tiles.size(); tile += kTilesOfTask)
      tasks.push_back({&item, tile});
  }
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    const auto& [item, first] = tasks[static_cast<std::size_t>(i)];
    const auto head_dim = static_cast<std::size_t>(item->head_dim);
    const std::size_t n_tiles = item->tiles.size();
    const std::size_t end = std::min(first + kTilesOfTask, n_tiles);
    for (std::size_t tile = first; tile < end; ++tile) {
      for (std::size_t query = 0; query * head_dim < item->q.size(); ++query) {
        bound_tile(item->q.subspan(query * head_dim, head_dim), item->tiles[tile],
                   item->bounds.data() + (query * n_tiles + tile) * kPages);
      }
    }
  });
}

void best_pages(std::span<const BestPagesItem> items) {
  parallel_for(static_cast<std::int64_t>(items.size()), [&](std::int64_t i) {
    const BestPagesItem& item = items[static_cast<std::size_t>(i)];
    thread_local std::vector<std::int32_t> pages;
    pages.clear();
    for (std::size_t page = 0; page < item.bounds.size(); ++page) {
      if (static_cast<std::int64_t>(page) != item.besides)
        pages.push_back(static_cast<std::int32_t>(page));
    }
    require(item.best.size() <= pages.size(), "best_pages: more pages wanted than there are");
    const auto wins = [&](std::int32_t a, std::int32_t b) {
      const float of_a = item.bounds[static_cast<std::size_t>(a)];
      const float of_b = item.bounds[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    };
    const auto n = static_cast<std::ptrdiff_t>(item.best.size());
    if (item.best.size() < pages.size())
      std::nth_element(pages.begin(), pages.begin() + n, pages.end(), wins);
    std::copy_n(pages.begin(), n, item.best.begin());
  });
}

}  // namespace longhaul
