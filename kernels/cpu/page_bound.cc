// widen_bounds and bound_products on CPUs.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"
#include "kernels/read_keys.h"

namespace longhaul::cpu {
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

void widen(const KvBlockShape& shape, const WidenBoundsItem& item) {
  if (item.slots.empty()) return;
  std::vector<float> keys(static_cast<std::size_t>(item.slots.size()));
  KeyReader reader(shape, item.block, item.slots);
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    reader.read(d, keys);
    const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
    float* row = item.tile + 2 * d * kBoundPages + item.lane;
    row[0] = std::min(item.is_new ? kInfinity : row[0], *least);
    row[kBoundPages] = std::max(item.is_new ? -kInfinity : row[kBoundPages], *most);
  }
}

}  // namespace

void widen_bounds(const WidenBoundsArgs& args) {
  for (const WidenBoundsItem& item : args.items) widen(args.shape, item);
}

void bound_products(std::span<const PageBoundItem> items) {
  struct Task {
    const PageBoundItem* item;
    std::size_t first_tile;
  };
  std::vector<Task> tasks;
  for (const PageBoundItem& item : items) {
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

}  // namespace longhaul::cpu
