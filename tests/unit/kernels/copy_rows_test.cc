// copy_rows, residual_add and sum_rows against loops over their elements; read_all.
#include "kernels/copy_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "kernels/read_all.h"
#include "kernels/residual_add.h"
#include "kernels/sum_rows.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class CopyRows : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(CopyRows);

// Items of different sizes, of words that are and are not 16 bytes together, side by side in one
// target whose gaps stay as they are.
TEST_P(CopyRows, MovesTheRowsAndNothingElse) {
  struct Case {
    std::size_t row_floats, from_stride, to_stride;
    std::int64_t n_rows;
  };
  const std::vector<Case> cases{{4, 8, 12, 7},         {3, 3, 5, 9},    {1, 0, 4, 6}, {0, 4, 4, 5},
                                {2048, 2048, 2052, 5}, {16, 20, 16, 1}, {5, 6, 7, 0}};
  Random random(base_seed());
  const std::vector<float> from = random.normals(11'000);
  std::vector<float> want = random.normals(14'000);
  const Memory<float> from_there(stream(), from);
  const Memory<float> to_there(stream(), want);
  std::vector<CopyRowsItem> items;
  std::size_t at = 4;
  for (const Case& c : cases) {
    items.push_back({.to = reinterpret_cast<std::byte*>(to_there.data() + at),
                     .to_stride = c.to_stride * sizeof(float),
                     .from = reinterpret_cast<const std::byte*>(from_there.data() + 8),
                     .from_stride = c.from_stride * sizeof(float),
                     .row_bytes = c.row_floats * sizeof(float),
                     .n_rows = c.n_rows});
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.n_rows); ++row) {
      for (std::size_t i = 0; i < c.row_floats; ++i) {
        want[at + row * c.to_stride + i] = from[8 + row * c.from_stride + i];
      }
    }
    at += static_cast<std::size_t>(c.n_rows) * c.to_stride + 4;
  }
  ASSERT_LE(at, want.size());
  copy_rows(stream(), items);
  copy_rows(stream(), {});
  EXPECT_EQ(to_there.values(), want);
}

class ResidualAdd : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(ResidualAdd);

TEST_P(ResidualAdd, AddsInOrder) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kWidth = 300;
  Random random(base_seed());
  const std::vector<float> hidden = random.normals(kRows * kWidth);
  constexpr std::int64_t kParts = 3;
  const std::vector<float> parts = random.normals(kParts * kRows * kWidth);
  const std::vector<float> bias = random.normals(kWidth);
  const Memory<float> parts_there(stream(), parts);
  for (const auto& [n_parts, has_bias] : {std::pair(1, false), {1, true}, {2, true}, {3, false}}) {
    const Memory<float> hidden_there(stream(), hidden);
    const Memory<float> bias_there(stream(), bias);
    residual_add(stream(), {.hidden = {hidden_there.data(), {kRows, kWidth}},
                            .parts = {parts_there.data(), {n_parts, kRows, kWidth}},
                            .bias = has_bias ? bias_there.span() : std::span<float>()});
    std::vector<float> want = hidden;
    for (std::size_t i = 0; i < want.size(); ++i) {
      float sum = parts[i];
      for (int p = 1; p < n_parts; ++p) sum += parts[static_cast<std::size_t>(p) * want.size() + i];
      want[i] = hidden[i] + (sum + (has_bias ? bias[i % kWidth] : 0.0F));
    }
    EXPECT_EQ(hidden_there.values(), want);
  }
}

class SumRows : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(SumRows);

// The same bits everywhere; sizes around a thread block, and more columns than threads.
TEST_P(SumRows, AddsRowsInTheirOrder) {
  Random random(base_seed());
  for (const std::int64_t n : {1, 255, 257, 5000, 1'100'000}) {
    const std::int64_t n_rows = n > 100'000 ? 2 : 5;
    std::vector<float> rows;
    for (std::int64_t r = 0; r < n_rows; ++r) {
      const auto row = random.normals(n, r % 2 == 0 ? 1.0 : 1000.0);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    std::vector<float> want(rows.begin(), rows.begin() + n);
    for (std::size_t i = static_cast<std::size_t>(n); i < rows.size(); ++i) {
      want[i % static_cast<std::size_t>(n)] += rows[i];
    }
    const Memory<float> there(stream(), rows);
    const Memory<float> sum(stream(), n, 0.0F);
    sum_rows(stream(), {.rows = {there.data(), {n_rows, n}}, .sum = {sum.data(), {n}}});
    EXPECT_EQ(sum.values(), want) << "n = " << n << ", seed " << base_seed();
  }
}

TEST_P(SumRows, RefusesSizesThatDoNotFit) {
  const Memory<float> some(stream(), std::int64_t{12});
  EXPECT_THROW(sum_rows(stream(), {.rows = {some.data(), {2, 4}}, .sum = {some.data() + 8, {3}}}),
               Error);
  EXPECT_THROW(sum_rows(stream(), {.rows = {some.data(), {0, 4}}, .sum = {some.data() + 8, {4}}}),
               Error);
}

class ReadAll : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(ReadAll);

TEST_P(ReadAll, LeavesMemoryAsItIs) {
  Random random(base_seed());
  const std::vector<float> values = random.normals(100'004);
  const Memory<float> there(stream(), values);
  const Memory<float> unused(stream(), std::int64_t{4}, 7.0F);
  const auto* from = reinterpret_cast<const std::byte*>(there.data());
  auto* to = reinterpret_cast<std::byte*>(unused.data());
  for (const std::size_t n_bytes : {0, 16, 400'016}) {
    read_all(stream(), {.from = from, .n_bytes = n_bytes, .unused = to});
  }
  EXPECT_EQ(there.values(), values);
  EXPECT_EQ(unused.values(), std::vector<float>(4, 7.0F));
  EXPECT_THROW(read_all(stream(), {.from = from, .n_bytes = 15, .unused = to}), Error);
}

}  // namespace
}  // namespace longhaul::test
