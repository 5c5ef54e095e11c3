// Matrices of fp8 weights: how far they are from what they were made of, which weights share a
// scale, also in slices, and codes that are no numbers.
#include "kernels/fp8_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

Fp8Matrix fp8_of(std::int64_t n_out, std::int64_t n_in, const std::vector<float>& values,
                 const Fp8Layout& layout = {}) {
  const auto read_row = [&](std::int64_t output, float* row) {
    std::copy_n(values.begin() + output * n_in, n_in, row);
  };
  return Fp8Matrix::quantise(n_out, n_in, read_row, layout);
}

// Three bits of mantissa: within a 16th of a weight, or half of the smallest step, a 2^-10th of the
// scale.
TEST(Fp8Weights, AreWithinHalfAStepOfWhatTheyAreMadeOf) {
  Random random(base_seed());
  for (const std::int64_t n_out : {1, 3, 128, 131, 300}) {
    for (const std::int64_t n_in : {1, 70, 128, 257}) {
      const std::vector<float> values = random.normals(n_out * n_in);
      const Fp8Matrix matrix = fp8_of(n_out, n_in, values);
      const WeightView view = matrix.view();
      for (std::int64_t o = 0; o < n_out; ++o) {
        for (std::int64_t i = 0; i < n_in; ++i) {
          const float w = values[static_cast<std::size_t>(o * n_in + i)];
          const float scale = view.block_scales[o / 128 * view.scale_stride + i / 128];
          ASSERT_LE(std::abs(fp8_weight(view, o, i) - w),
                    std::max(std::abs(w) * 0x1p-4F, scale * 0x1p-10F) * 1.0001F)
              << "[" << n_out << ", " << n_in << "] at " << o << ", " << i;
        }
      }
    }
  }
}

TEST(Fp8Weights, TheLargestOfABlockIsExactAndTheScaleIsIts448th) {
  std::vector<float> values(130 * 260, 0.25F);
  values[0] = -7.0F;                  // block 0, 0
  values[129 * 260 + 259] = 1792.0F;  // block 1, 2
  const Fp8Matrix matrix = fp8_of(130, 260, values);
  const WeightView view = matrix.view();
  EXPECT_EQ(view.scale_stride, 3);
  EXPECT_EQ(view.block_scales[0], 7.0F / 448.0F);
  EXPECT_EQ(view.block_scales[1], 0.25F / 448.0F);
  EXPECT_EQ(view.block_scales[5], 4.0F);
  EXPECT_EQ(fp8_weight(view, 0, 0), -7.0F);
  EXPECT_EQ(fp8_weight(view, 129, 259), 1792.0F);
  EXPECT_EQ(fp8_weight(view, 5, 200), 0.25F);
}

TEST(Fp8Weights, SlicesKeepTheirScales) {
  Random random(base_seed());
  const std::vector<float> values = random.normals(300 * 400);
  for (const Fp8Layout& layout : {Fp8Layout{}, Fp8Layout{1, 448}, Fp8Layout{40, 64}}) {
    const Fp8Matrix matrix = fp8_of(300, 400, values, layout);
    const WeightView whole = matrix.view();
    const WeightView part =
        whole.outputs({30, 290}).inputs({50, 400}).outputs({100, 200}).inputs({130, 300});
    EXPECT_EQ(part.n_out, 100);
    EXPECT_EQ(part.n_in, 170);
    for (const std::int64_t o : {0, 1, 27, 28, 99}) {
      for (const std::int64_t i : {0, 11, 12, 75, 76, 169})
        EXPECT_EQ(fp8_weight(part, o, i), fp8_weight(whole, o + 130, i + 180));
    }
  }
}

TEST(Fp8Weights, OnesOfZerosAreZeros) {
  const Fp8Matrix matrix = fp8_of(2, 3, {0, 0, -0.0F, 1e-37F, 0, -1e-40F});
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(fp8_weight(matrix.view(), i / 3, i % 3), 0.0F);
}

TEST(Fp8Weights, RefuseWhatIsNoNumberAndBlocksThatVectorsCannotEndWith) {
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_THROW(fp8_of(2, 2, {1, 2, 3, wrong}), Error);
  EXPECT_THROW(fp8_of(0, 2, {}), Error);
  const std::uint8_t code = 0;
  const float scale = 1;
  EXPECT_THROW(fp8_view(&code, 1, 1, &scale, {128, 100}), Error);
}

TEST(Fp8Weights, TheFirstNanIsFound) {
  std::vector<std::uint8_t> codes(100'000);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 127);
  EXPECT_EQ(first_nan(codes), std::nullopt);
  codes[99'999] = 0xff;
  EXPECT_EQ(first_nan(codes), 99'999);
  codes[4097] = 0x7f;
  EXPECT_EQ(first_nan(codes), 4097);
  EXPECT_EQ(first_nan({}), std::nullopt);
}

}  // namespace
}  // namespace longhaul::test
