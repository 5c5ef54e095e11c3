#include "kernels/page_bound.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {

void widen_bounds(StreamRef stream, const WidenBoundsArgs& args) {
  check_kv_block_shape("widen_bounds", args.shape);
  require_cpu_for_groups("widen_bounds", stream.device(), args.shape);
  if (args.items.empty()) return;
  run_on(stream, cpu::widen_bounds, cuda::widen_bounds, args);
}

void bound_products(StreamRef stream, std::span<const PageBoundItem> items) {
  for (const PageBoundItem& item : items) {
    const std::int64_t n_queries = static_cast<std::int64_t>(item.q.size()) / item.head_dim;
    require_equal("bound_products", "bounds", static_cast<std::int64_t>(item.bounds.size()),
                  n_queries * static_cast<std::int64_t>(item.tiles.size()) * kBoundPages);
  }
  if (items.empty()) return;
  run_on(stream, cpu::bound_products, cuda::bound_products, items);
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
