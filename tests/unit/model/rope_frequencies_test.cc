// Hand values; the comparison with transformers is in hf_reference_test.cc.
#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace longhaul {
namespace {

ModelSpec spec_with(std::int64_t head_dim, double theta) {
  ModelSpec spec;
  spec.head_dim = head_dim;
  spec.rope_theta = theta;
  return spec;
}

TEST(RopeFrequencies, DefaultIsThetaToTheMinusTwoIOverHeadDim) {
  const auto rope = rope_frequencies(spec_with(8, 10000));
  ASSERT_EQ(rope.inverse_frequencies.size(), 4U);
  const double want[] = {1.0, 0.1, 0.01, 0.001};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(rope.inverse_frequencies[i], want[i]);
  EXPECT_EQ(rope.attention_scale, 1.0);
}

TEST(RopeFrequencies, LinearDividesAll) {
  ModelSpec spec = spec_with(8, 10000);
  spec.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 4};
  const auto rope = rope_frequencies(spec);
  EXPECT_DOUBLE_EQ(rope.inverse_frequencies[0], 0.25);
  EXPECT_DOUBLE_EQ(rope.inverse_frequencies[3], 0.00025);
}

TEST(RopeFrequencies, Llama3KeepsShortWavesAndStretchesLongOnes) {
  ModelSpec spec = spec_with(128, 500000);
  spec.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                       .factor = 8,
                       .low_freq_factor = 1,
                       .high_freq_factor = 4,
                       .original_max_position = 8192};
  ModelSpec plain_spec = spec_with(128, 500000);
  const auto plain = rope_frequencies(plain_spec).inverse_frequencies;
  const auto scaled = rope_frequencies(spec).inverse_frequencies;
  int n_between = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 2048) {
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
    } else {
      ++n_between;
      EXPECT_GT(scaled[i], plain[i] / 8);
      EXPECT_LT(scaled[i], plain[i]);
    }
  }
  EXPECT_EQ(n_between, 6);  // of 64 pairs, for Llama 3.1
}

TEST(RopeFrequencies, YarnKeepsTheFirstPairsStretchesTheLastAndScalesAttention) {
  ModelSpec spec = spec_with(128, 1e6);
  spec.rope_scaling = {
      .kind = RopeScaling::Kind::kYarn, .factor = 4, .original_max_position = 32768};
  const auto plain = rope_frequencies(spec_with(128, 1e6)).inverse_frequencies;
  const auto rope = rope_frequencies(spec);
  EXPECT_EQ(rope.inverse_frequencies.front(), plain.front());
  EXPECT_DOUBLE_EQ(rope.inverse_frequencies.back(), plain.back() / 4);
  EXPECT_DOUBLE_EQ(rope.attention_scale, 0.1 * std::log(4.0) + 1.0);  // the paper's
}

TEST(RopeFrequencies, FactorOneChangesNothing) {
  ModelSpec spec = spec_with(64, 10000);
  const auto plain = rope_frequencies(spec).inverse_frequencies;
  for (const auto kind :
       {RopeScaling::Kind::kLinear, RopeScaling::Kind::kLlama3, RopeScaling::Kind::kYarn}) {
    spec.rope_scaling = {.kind = kind, .factor = 1, .original_max_position = 4096};
    const auto rope = rope_frequencies(spec);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_NEAR(rope.inverse_frequencies[i], plain[i], 1e-15);
    }
    EXPECT_EQ(rope.attention_scale, 1.0);
  }
}

}  // namespace
}  // namespace longhaul
