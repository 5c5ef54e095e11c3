// Bounds of pages' products with queries: against double precision, in every cache type, for pages
// that get their keys at once and in parts.
#include "kernels/page_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/kv_append.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kPageTokens = 8;
constexpr std::int64_t kPagedDim = 24;
constexpr std::int64_t kPagedBlock = 16;
constexpr std::int64_t kPagedTokens = 291;  // 37 pages, the last one of 3 tokens; 3 tiles

class PageBound : public EachDevice {};

TEST_P(PageBound, IsThatOfDoublePrecision) {
  for (const KvType type : kPlainKvTypes) {
    Random random(base_seed() + static_cast<std::uint64_t>(type));
    const KvBlockShape shape{
        .block_size = kPagedBlock, .head_dim = kPagedDim, .k_type = type, .v_type = type};
    std::vector<Memory<std::byte>> blocks;
    std::vector<std::vector<float>> keys;  // as the blocks hold them
    for (std::int64_t first = 0; first < kPagedTokens; first += kPagedBlock) {
      const std::int64_t n = std::min(kPagedBlock, kPagedTokens - first);
      Tensor<float, 2> k({n, kPagedDim});
      std::ranges::copy(random.normals(n * kPagedDim), k.data());
      std::vector<std::byte> bytes(shape.bytes());
      std::byte* block = bytes.data();
      const KvAppendItem item{.k = k.view(), .v = k.view(), .blocks = {&block, 1}};
      kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
      blocks.emplace_back(stream(), bytes);
      for (std::int64_t slot = 0; slot < n; ++slot)
        kv_read_k(shape, block, slot, {keys.emplace_back(kPagedDim).data(), {1, kPagedDim}});
    }
    const std::int64_t n_pages = (kPagedTokens + kPageTokens - 1) / kPageTokens;
    const std::int64_t n_tiles = (n_pages + kBoundPages - 1) / kBoundPages;
    std::vector<Memory<float>> tiles;
    std::vector<const float*> tile_data;
    for (std::int64_t i = 0; i < n_tiles; ++i) {
      tiles.emplace_back(stream(), bound_tile_floats(kPagedDim), 7.0F);
      tile_data.push_back(tiles.back().data());
    }
    // Every third page in two parts.
    for (const bool is_second : {false, true}) {
      std::vector<WidenBoundsItem> items;
      for (std::int64_t page = 0; page < n_pages; ++page) {
        const std::int64_t first = page * kPageTokens;
        const std::int64_t slot = first % kPagedBlock;
        const std::int64_t n = std::min(kPageTokens, kPagedTokens - first);
        const std::int64_t n_first = page % 3 == 0 ? 2 : n;
        const Extent slots =
            is_second ? Extent{slot + n_first, slot + n} : Extent{slot, slot + n_first};
        if (slots.empty()) continue;
        items.push_back({.block = blocks[static_cast<std::size_t>(first / kPagedBlock)].data(),
                         .slots = slots,
                         .tile = tiles[static_cast<std::size_t>(page / kBoundPages)].data(),
                         .lane = page % kBoundPages,
                         .is_new = !is_second});
      }
      widen_bounds(stream(), {.shape = shape, .items = items});
    }
    constexpr std::int64_t kQueries = 3;
    const std::vector<float> q = random.normals(kQueries * kPagedDim);
    const Memory<float> q_there(stream(), q);
    std::vector<float> bounds(static_cast<std::size_t>(kQueries * n_tiles * kBoundPages));
    std::vector<float> fewer(static_cast<std::size_t>(kBoundPages));
    const std::vector<PageBoundItem> asked = {
        {.q = q_there.span(), .head_dim = kPagedDim, .tiles = tile_data, .bounds = bounds},
        {.q = q_there.span().first(kPagedDim),
         .head_dim = kPagedDim,
         .tiles = std::span<const float* const>(tile_data).subspan(1, 1),
         .bounds = fewer}};
    bound_products(stream(), asked);
    for (std::int64_t query = 0; query < kQueries; ++query) {
      for (std::int64_t page = 0; page < n_pages; ++page) {
        double want = 0;
        for (std::int64_t d = 0; d < kPagedDim; ++d) {
          double most = -1e30;
          for (std::int64_t t = page * kPageTokens;
               t < std::min((page + 1) * kPageTokens, kPagedTokens); ++t) {
            most = std::max(
                most, static_cast<double>(q[static_cast<std::size_t>(query * kPagedDim + d)]) *
                          static_cast<double>(
                              keys[static_cast<std::size_t>(t)][static_cast<std::size_t>(d)]));
          }
          want += most;
        }
        const float got = bounds[static_cast<std::size_t>(query * n_tiles * kBoundPages + page)];
        EXPECT_NEAR(static_cast<double>(got), want, 1e-5 * (1 + std::abs(want)))
            << name_of(type) << ", page " << page;
      }
    }
    for (std::size_t lane = 0; lane < fewer.size(); ++lane)
      EXPECT_EQ(fewer[lane], bounds[static_cast<std::size_t>(kBoundPages) + lane]);
  }
}

LONGHAUL_ON_EACH_DEVICE(PageBound);

}  // namespace
}  // namespace longhaul::test
