// Rows for files against kv_read, which reads the same blocks element by element.
#include "worker/snapshot/block_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "tests/support/random.h"

namespace longhaul {
namespace {

std::vector<float> as_floats(const std::vector<std::byte>& rows, DType dtype) {
  std::vector<float> values;
  for (std::size_t i = 0; i < rows.size(); i += size_of(dtype)) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, rows.data() + i, size_of(dtype));
    values.push_back(std::bit_cast<float>(dtype == DType::kBf16 ? bits << 16 : bits));
  }
  return values;
}

TEST(BlockRows, AreWhatKvReadSays) {
  test::Random random(test::base_seed());
  for (int round = 0; round < 50 * test::intensity(); ++round) {
    const auto dtype = [&] { return random.chance(0.5) ? DType::kF32 : DType::kBf16; };
    const KvBlockShape shape{.block_size = 16 * random.integer(1, 4),
                             .head_dim = 2 * random.integer(4, 40),
                             .k_dtype = dtype(),
                             .v_dtype = dtype()};
    std::vector<std::byte> block(shape.bytes());
    const auto values =
        random.normals(static_cast<std::int64_t>(block.size() / sizeof(float)), 1.0);
    std::memcpy(block.data(), values.data(), block.size());
    const std::int64_t first = random.integer(0, shape.block_size - 1);
    const std::int64_t n = random.integer(1, shape.block_size - first);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const DType type = dtype_of(shape, side);
      std::vector<std::byte> rows(static_cast<std::size_t>(n * shape.head_dim) * size_of(type));
      copy_block_rows({.shape = shape,
                       .side = side,
                       .block = block.data(),
                       .first_slot = first,
                       .n_tokens = n,
                       .to = rows.data()});
      std::vector<float> want(static_cast<std::size_t>(n * shape.head_dim));
      const TensorView<float, 2> view(want.data(), {n, shape.head_dim});
      (side == KvSide::kKeys ? kv_read_k : kv_read_v)(shape, block.data(), first, view);
      const auto got = as_floats(rows, type);
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), 4 * got.size()), 0) << "round " << round;
    }
  }
}

TEST(BlockRows, RefusesSlotsOutsideTheBlock) {
  const KvBlockShape shape{.block_size = 16, .head_dim = 4};
  EXPECT_THROW(copy_block_rows({.shape = shape, .first_slot = 10, .n_tokens = 7}), Error);
  EXPECT_THROW(copy_block_rows({.shape = shape, .first_slot = -1, .n_tokens = 1}), Error);
}

TEST(BlockRows, RunsJoinNeighbours) {
  const std::vector<KvBlockRef> blocks = {{nullptr, 0, 16}, {nullptr, 16, 16}, {nullptr, 48, 3}};
  EXPECT_EQ(n_tokens_in(blocks), 35);
  EXPECT_THAT(position_runs(blocks), testing::ElementsAre(Extent{0, 32}, Extent{48, 51}));
  EXPECT_TRUE(position_runs({}).empty());
}

}  // namespace
}  // namespace longhaul
