// Which blocks queries meet closed and which open.
#include "worker/attention/open_items.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "kernels/tensor.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBlock = 4;

std::vector<KvBlockRef> blocks_from(std::int64_t first, std::int64_t n_tokens) {
  static const std::byte data{};
  std::vector<KvBlockRef> out;
  for (std::int64_t i = 0; i < n_tokens; i += kBlock)
    out.push_back({&data, first + i, std::min(kBlock, n_tokens - i)});
  return out;
}

// Queries at [first, first + n) of one head.
struct Queries {
  Tensor<float, 3> q;
  Tensor<float, 3> o;
  Tensor<float, 2> m;
  Tensor<float, 2> l;
  std::vector<std::int64_t> positions;
  Queries(std::int64_t first, std::int64_t n)
      : q({n, 1, 8}), o({n, 1, 8}), m({n, 1}), l({n, 1}), positions(static_cast<std::size_t>(n)) {
    std::iota(positions.begin(), positions.end(), first);
  }
  AttentionItem item(std::span<const KvBlockRef> blocks, const AttentionMask& mask) {
    return {.q = q.view(),
            .q_positions = positions,
            .blocks = blocks,
            .mask = mask,
            .state = {o.view(), m.view(), l.view()}};
  }
};

TEST(OpenItems, WithoutAWindowAllQueriesAreOneItem) {
  Queries queries(2, 8);  // 2 .. 9
  const auto closed = blocks_from(0, 8);
  const auto open = blocks_from(0, 10);
  OpenItems items;
  std::vector<AttentionItem> of_closed;
  items.add(queries.item(closed, {}), kBlock, open, of_closed);
  items.add(queries.item(closed, {}), kBlock, open, of_closed);
  ASSERT_EQ(of_closed.size(), 2U);
  const AttentionItem& item = of_closed.front();
  EXPECT_EQ(item.blocks.size(), 2U);
  EXPECT_EQ(item.q.data(), queries.q.view()[2].data());
  EXPECT_EQ(std::vector(item.q_positions.begin(), item.q_positions.end()),
            (std::vector<std::int64_t>{3, 3, 3, 3, 7, 7}));
  // By this kernels know the heads of a sequence.
  EXPECT_EQ(of_closed[1].q_positions.data(), item.q_positions.data());
  ASSERT_EQ(items.open().size(), 6U);  // three of each head
  EXPECT_EQ(items.open()[1].q_positions.front(), 4);
  EXPECT_EQ(items.open()[1].blocks.front().first_position, 4);
}

TEST(OpenItems, WithAWindowTheQueriesOfABlockAreOne) {
  Queries queries(2, 8);
  const auto closed = blocks_from(0, 8);
  OpenItems items;
  std::vector<AttentionItem> of_closed;
  items.add(queries.item(closed, {.sink = 1, .recent = 3}), kBlock, {}, of_closed);
  ASSERT_EQ(of_closed.size(), 2U);
  EXPECT_EQ(of_closed[0].blocks.size(), 1U);
  EXPECT_EQ(of_closed[0].q_positions.front(), 4);
  EXPECT_EQ(of_closed[1].blocks.size(), 2U);
  EXPECT_EQ(of_closed[1].q_positions.front(), 8);
  EXPECT_TRUE(items.open().empty());
}

TEST(OpenItems, ATableOfClosedBlocksStays) {
  Queries queries(9, 1);
  const auto closed = blocks_from(0, 8);
  OpenItems items;
  std::vector<AttentionItem> of_closed;
  AttentionItem item = queries.item(closed, {});
  item.table = BlockTable{.n_tokens = 8, .gone = {}};
  const auto open = blocks_from(8, 2);
  items.add(item, kBlock, open, of_closed);
  ASSERT_EQ(of_closed.size(), 1U);
  ASSERT_TRUE(of_closed[0].table.has_value());
  EXPECT_EQ(of_closed[0].table->n_tokens, 8);
  EXPECT_FALSE(items.open().front().table.has_value());
}

TEST(OpenItems, TheFirstBlocksQueriesMeetNothingClosed) {
  Queries queries(0, 4);
  const auto closed = blocks_from(0, 4);
  OpenItems items;
  std::vector<AttentionItem> of_closed;
  items.add(queries.item(closed, {}), kBlock, closed, of_closed);
  EXPECT_TRUE(of_closed.empty());
  EXPECT_EQ(items.open().size(), 1U);
  EXPECT_THROW(items.add(queries.item({}, {}), kBlock, blocks_from(4, 4), of_closed), Error);
}

}  // namespace
}  // namespace longhaul
