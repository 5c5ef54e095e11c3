// copy_rows and residual_add against loops over their elements.
#include "kernels/copy_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/residual_add.h"
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
  const std::vector<float> part = random.normals(kRows * kWidth);
  const std::vector<float> bias = random.normals(kWidth);
  for (const bool has_bias : {false, true}) {
    const Memory<float> hidden_there(stream(), hidden);
    const Memory<float> part_there(stream(), part);
    const Memory<float> bias_there(stream(), bias);
    residual_add(stream(), {.hidden = {hidden_there.data(), {kRows, kWidth}},
                            .part = {part_there.data(), {kRows, kWidth}},
                            .bias = has_bias ? bias_there.span() : std::span<float>()});
    std::vector<float> want = hidden;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const float sum = part[i] + (has_bias ? bias[i % kWidth] : 0.0F);
      want[i] = hidden[i] + sum;
    }
    EXPECT_EQ(hidden_there.values(), want);
  }
}

}  // namespace
}  // namespace longhaul::test
