// Matrices of int8 weights: how far they are from what they were made of, where a weight lies, and
// what is refused.
#include "kernels/int8_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/kernels/each_isa.h"

namespace longhaul::test {
namespace {

Int8Matrix quantised(const Int8Shape& shape, const std::vector<float>& values) {
  return Int8Matrix::quantise(shape, [&](std::int64_t output, float* row) {
    std::copy_n(values.begin() + output * shape.n_in, shape.n_in, row);
  });
}

TEST(Int8Weights, AreWithinHalfAStepOfTheLargestOfTheirOutput) {
  Random random(base_seed());
  for (const std::int64_t n_out : {1, 16, 37}) {
    for (const std::int64_t n_in : {1, 4, 131, 1000}) {
      std::vector<float> values = random.normals(n_out * n_in, 0.05);
      for (std::int64_t i = 0; i < n_in; ++i) values[static_cast<std::size_t>(i)] *= 1000.0F;
      const Int8Matrix matrix = quantised({n_out, n_in}, values);
      for (std::int64_t o = 0; o < n_out; ++o) {
        const float* row = values.data() + o * n_in;
        float largest = 0;
        for (std::int64_t i = 0; i < n_in; ++i) largest = std::max(largest, std::abs(row[i]));
        EXPECT_EQ(matrix.view().scales[o], largest / 127.0F);
        for (std::int64_t i = 0; i < n_in; ++i) {
          ASSERT_LE(std::abs(int8_weight(matrix.view(), o, i) - row[i]),
                    largest / 254.0 * (1 + 1e-5))
              << "output " << o << " of " << n_out << ", input " << i << " of " << n_in;
        }
      }
    }
  }
}

TEST(Int8Weights, LieInPanelsOfSixteenOutputsAndStepsOfFourInputs) {
  std::vector<float> values;  // output o, input i: o + 1 with the sign of input i
  for (int o = 0; o < 20; ++o) {
    for (int i = 0; i < 6; ++i) values.push_back(static_cast<float>(i % 2 == 0 ? o + 1 : -o - 1));
  }
  const Int8Matrix matrix = quantised({20, 6}, values);
  const auto* bytes = static_cast<const std::uint8_t*>(matrix.view().data);
  EXPECT_EQ(matrix.bytes(), 2 * 2 * 64 + 32 * 4);
  EXPECT_EQ(bytes[3 * 4 + 2], 128 + 127);            // panel 0, step 0, output 3, input 2
  EXPECT_EQ(bytes[64 + 3 * 4 + 1], 128 - 127);       // step 1: input 5
  EXPECT_EQ(bytes[64 + 3 * 4 + 2], 128);             // there is no input 6
  EXPECT_EQ(bytes[128 + 1 * 4], 128 + 127);          // panel 1: output 17
  EXPECT_EQ(matrix.view().scales[17], 18.0F / 127);  // lanes from 20 on do not exist
}

TEST(Int8Weights, BytesAreThoseThatPlanningCounts) {
  for (const std::int64_t n_out : {1, 16, 17, 96}) {
    for (const std::int64_t n_in : {1, 4, 6, 300}) {
      const std::vector<float> zeros(static_cast<std::size_t>(n_out * n_in));
      EXPECT_EQ(quantised({n_out, n_in}, zeros).bytes(), int8_matrix_bytes(n_out, n_in));
    }
  }
}

TEST(Int8Weights, IntegersThatAreThereAreKept) {
  const std::vector<std::int8_t> integers = {-128, -1, 0, 1, 127, 5};
  const Int8Matrix matrix = Int8Matrix::pack(
      {2, 3},
      [&](std::int64_t o, std::int8_t* row) { std::copy_n(integers.begin() + o * 3, 3, row); },
      [](std::int64_t o) { return o == 0 ? 0.5F : 2.0F; });
  EXPECT_EQ(int8_weight(matrix.view(), 0, 0), -64.0F);
  EXPECT_EQ(int8_weight(matrix.view(), 0, 1), -0.5F);
  EXPECT_EQ(int8_weight(matrix.view(), 1, 1), 254.0F);
}

TEST(Int8Weights, ZerosAndVanishingOnesAreZero) {
  const Int8Matrix matrix = quantised({2, 3}, {0, 0, -0.0F, 1e-39F, 0, -1e-40F});
  for (std::int64_t o = 0; o < 2; ++o) {
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(int8_weight(matrix.view(), o, i), 0.0F);
  }
}

TEST(Int8Weights, WhatIsNoNumberIsRefused) {
  for (const float wrong : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_THROW(quantised({2, 2}, {1, 2, 3, wrong}), Error);
  }
  EXPECT_THROW(quantised({2, 2, 6}, {1, 2, 3, 4}), Error);  // groups of 6: no whole steps
  EXPECT_THROW(quantised({0, 2}, {}), Error);
}

TEST(Int8Weights, ASliceOfInputsDoesNotCutAGroup) {
  const Int8Matrix matrix = quantised({3, 22, 8}, std::vector<float>(66, 1.0F));
  EXPECT_NO_THROW(matrix.view().inputs({8, 16}));
  EXPECT_NO_THROW(matrix.view().inputs({8, 22}));
  EXPECT_THROW(matrix.view().inputs({4, 16}), Error);
  EXPECT_THROW(matrix.view().inputs({8, 20}), Error);
  EXPECT_THROW(matrix.view().inputs({8, 22}).inputs({4, 14}), Error);
}

}  // namespace
}  // namespace longhaul::test
