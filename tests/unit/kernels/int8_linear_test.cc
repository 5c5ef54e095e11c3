// linear with int8 weights: every instruction set and the GPU against the double reference, and the
// laws that results have the same bits everywhere, beside any other rows, in slices.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/linear_paths.h"
#include "kernels/cpu/threads.h"
#include "kernels/int8_weights.h"
#include "kernels/reference/operators.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/weight_there.h"

namespace longhaul::test {
namespace {

struct Int8Product;

class Int8Linear : public EachDevice {
 protected:
  void expect_reference(const Int8Product& p) const;
  void expect_bits_of_baseline(const Int8Product& p) const;
};
LONGHAUL_ON_EACH_DEVICE(Int8Linear);

struct Int8Product {
  std::int64_t n_tokens;
  Int8Shape shape;
  bool bias = false;
  LinearOutput output = LinearOutput::kOverwrite;
};

// Random x and weights; a few activations far larger than the others, as trained models have.
struct Int8Operands {
  std::vector<float> x, bias;
  std::vector<float> weight;
  Int8Matrix matrix;

  Int8Operands(const Int8Product& p, Random& random)
      : x(random.normals(p.n_tokens * p.shape.n_in)),
        bias(p.bias ? random.normals(p.shape.n_out) : std::vector<float>{}),
        weight(random.normals(p.shape.n_out * p.shape.n_in, 0.05)),
        matrix(Int8Matrix::quantise(p.shape, [&](std::int64_t output, float* row) {
          std::copy_n(weight.begin() + output * p.shape.n_in, p.shape.n_in, row);
        })) {
    for (std::size_t i = 0; i < x.size(); i += 97) x[i] *= 30.0F;
  }
};

std::vector<float> compute(StreamRef stream, const Int8Product& p, const Int8Operands& o) {
  const WeightThere weight(stream, o.matrix.view());
  return product_there(stream, o.x, weight.view(), o.bias, p.output);
}

std::vector<double> expected(const Int8Product& p, const Int8Operands& o) {
  const Int8Shape& s = p.shape;
  std::vector<double> out =
      reference::linear(reference::quantised(o.x, s.n_in, s.group),
                        reference::quantised(o.weight, s.n_in, s.n_in), s.n_in, widened(o.bias));
  if (p.output == LinearOutput::kAccumulate) {
    for (double& value : out) value += 1.0;
  }
  return out;
}

void Int8Linear::expect_reference(const Int8Product& p) const {
  Random random(base_seed());
  const Int8Operands o(p, random);
  EXPECT_TRUE(close(compute(stream(), p, o), expected(p, o), {1e-5, 1e-5, 1 - 1e-9}))
      << "x [" << p.n_tokens << ", " << p.shape.n_in << "] n_out " << p.shape.n_out << " groups of "
      << p.shape.group << " bias " << p.bias << " accumulate "
      << (p.output == LinearOutput::kAccumulate);
}

TEST_P(Int8Linear, MatchesTheReference) {
  for (const std::int64_t n_tokens : {1, 2, 3, 4, 5, 6, 7, 8, 13, 97}) {
    for (const std::int64_t n_in : {1, 3, 16, 129, 250, 384}) {
      for (const std::int64_t n_out : {1, 16, 17, 64, 131}) {
        const std::int64_t choice = n_tokens + n_in + n_out;
        const std::int64_t groups[] = {kInt8Group, 4, 20, 64, 2 * kInt8Group};
        expect_reference({n_tokens,
                          {n_out, n_in, groups[choice % 5]},
                          choice % 2 == 1,
                          choice % 3 == 1 ? LinearOutput::kAccumulate : LinearOutput::kOverwrite});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Int8Linear, LongSumsMatchTheReference) {
  for (const std::int64_t n_tokens : {1, 9, 40}) expect_reference({n_tokens, {90, 3000}, true});
  expect_reference({7, {33, 3000, 1024}});
}

// More rows and outputs than one task takes.
TEST_P(Int8Linear, ManyRowsMatchTheReference) { expect_reference({600, {150, 70, 32}, true}); }

// The largest products of all, which saturate sums of 16 bits.
TEST_P(Int8Linear, TheLargestIntegersDoNotOverflow) {
  constexpr std::int64_t kIn = 4096;
  for (const float sign : {1.0F, -1.0F}) {
    const Int8Matrix matrix = Int8Matrix::quantise(
        {17, kIn, kIn}, [&](std::int64_t, float* row) { std::fill_n(row, kIn, sign); });
    const std::vector<float> x(kIn, 1.0F);
    const WeightThere weight(stream(), matrix.view());
    for (const float value : product_there(stream(), x, weight.view())) {
      EXPECT_NEAR(value, sign * kIn, 1e-6 * kIn);
    }
  }
}

// Weights of the identity, whose only integer is 127: what comes out are the quantised activations.
TEST_P(Int8Linear, ActivationsAreWithinHalfAStepOfTheLargestOfTheirGroup) {
  constexpr std::int64_t kIn = 75;
  constexpr std::int64_t kGroup = 20;
  const Int8Matrix identity =
      Int8Matrix::quantise({kIn, kIn, kGroup}, [&](std::int64_t output, float* row) {
        std::fill_n(row, kIn, 0.0F);
        row[output] = 1.0F;
      });
  Random random(base_seed());
  std::vector<float> x = random.normals(kIn);
  x[25] = 50.0F;
  const WeightThere weight(stream(), identity.view());
  const std::vector<float> out = product_there(stream(), x, weight.view());
  for (std::int64_t i = 0; i < kIn; ++i) {
    float largest = 0;
    const std::int64_t begin = i / kGroup * kGroup;
    for (std::int64_t j = begin; j < std::min(kIn, begin + kGroup); ++j) {
      largest = std::max(largest, std::abs(x[static_cast<std::size_t>(j)]));
    }
    const auto at = static_cast<std::size_t>(i);
    EXPECT_LE(std::abs(out[at] - x[at]), largest / 254.0 * (1 + 1e-5)) << "input " << i;
  }
}

void Int8Linear::expect_bits_of_baseline(const Int8Product& p) const {
  Random random(base_seed());
  const Int8Operands o(p, random);
  const std::vector<float> here = compute(stream(), p, o);
  const Isa isa = active_isa();
  set_active_isa(Isa::kBaseline);
  EXPECT_EQ(here, compute(StreamRef::cpu(), p, o))
      << p.n_tokens << " rows, groups of " << p.shape.group;
  set_active_isa(isa);
}

TEST_P(Int8Linear, HasTheBitsOfTheBaseline) {
  for (const std::int64_t n_tokens : {1, 5, 8, 9, 17, 32, 33, 70, 130}) {
    expect_bits_of_baseline({n_tokens, {90, 700}, true, LinearOutput::kAccumulate});
    expect_bits_of_baseline({n_tokens, {300, 1100}, n_tokens % 2 == 0});
  }
  expect_bits_of_baseline({33, {90, 700, 60}, true});
}

// As attention's outputs have: all that the query heads of a KV head give are a group. The last
// ones end within a group, and within 128 inputs.
TEST_P(Int8Linear, LargeGroupsHaveTheBitsOfTheBaseline) {
  for (const std::int64_t n_tokens : {1, 8, 9, 17, 32, 33, 130}) {
    expect_bits_of_baseline({n_tokens, {90, 1536, 4 * kInt8Group}, true});
    expect_bits_of_baseline(
        {n_tokens, {40, 1700, 3 * kInt8Group}, false, LinearOutput::kAccumulate});
  }
}

// Enough rows and outputs for the GPU's largest tiles.
TEST_P(Int8Linear, LargeTilesHaveTheBitsOfTheBaseline) {
  expect_bits_of_baseline({300, {600, 300}, true, LinearOutput::kAccumulate});
  expect_bits_of_baseline({300, {600, 1100, 4 * kInt8Group}, true});
}

// More outputs and groups for one thread than AMX keeps in the second cache.
TEST_P(Int8Linear, ManyOutputsOfOneThreadHaveTheBitsOfTheBaseline) {
  set_kernel_threads(1);
  expect_bits_of_baseline({70, {2100, 700}, true});
  set_kernel_threads(0);
}

TEST_P(Int8Linear, ARowDoesNotDependOnTheRowsBesideItNorOnThreads) {
  const Int8Product p = {130, {200, 600}, true};
  Random random(base_seed());
  const Int8Operands o(p, random);
  const std::vector<float> all = compute(stream(), p, o);
  const WeightThere weight(stream(), o.matrix.view());
  for (const int n_threads : {1, 3}) {
    set_kernel_threads(n_threads);
    for (const std::int64_t n_rows : {1, 2, 7, 30}) {
      for (std::int64_t row = 0; row + n_rows <= p.n_tokens; row += n_rows) {
        const auto first = all.begin() + row * p.shape.n_out;
        const std::vector<float> want(first, first + n_rows * p.shape.n_out);
        const auto x = std::span(o.x).subspan(static_cast<std::size_t>(row * p.shape.n_in),
                                              static_cast<std::size_t>(n_rows * p.shape.n_in));
        ASSERT_EQ(product_there(stream(), x, weight.view(), o.bias), want)
            << n_rows << " rows from " << row << ", " << n_threads << " threads";
      }
    }
  }
}

// A rank's outputs have the bits of the whole; its inputs give sums that add up to the whole.
TEST_P(Int8Linear, SlicesGiveTheWhole) {
  const Int8Shape shape = {90, 70, 16};
  Random random(base_seed());
  for (const std::int64_t n_tokens : {1, 3, 33}) {
    const Int8Operands o({n_tokens, shape}, random);
    const WeightThere weight(stream(), o.matrix.view());
    const std::vector<float> whole = product_there(stream(), o.x, weight.view());
    for (const Extent outputs : {Extent{0, 7}, Extent{7, 84}, Extent{16, 32}, Extent{81, 90}}) {
      const WeightView slice = weight.view().outputs({2, 90}).outputs(
          {std::max<std::int64_t>(outputs.begin, 2) - 2, outputs.end - 2});
      const std::int64_t begin = std::max<std::int64_t>(outputs.begin, 2);
      const std::vector<float> part = product_there(stream(), o.x, slice);
      for (std::int64_t t = 0; t < n_tokens; ++t) {
        for (std::int64_t i = 0; i < slice.n_out; ++i) {
          ASSERT_EQ(part[static_cast<std::size_t>(t * slice.n_out + i)],
                    whole[static_cast<std::size_t>(t * shape.n_out + begin + i)]);
        }
      }
    }
    std::vector<float> sum(whole.size(), 0.0F);
    for (const Extent inputs : {Extent{0, 16}, Extent{16, 64}, Extent{64, 70}}) {
      std::vector<float> x;
      for (std::int64_t t = 0; t < n_tokens; ++t) {
        const auto row = o.x.begin() + t * shape.n_in;
        x.insert(x.end(), row + inputs.begin, row + inputs.end);
      }
      const auto part =
          product_there(stream(), x, weight.view().inputs(inputs).outputs({0, shape.n_out}));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    EXPECT_TRUE(close(sum, whole, {1e-5, 1e-5, 1 - 1e-9}));
  }
}

// What is no number must be seen, not rounded away.
TEST_P(Int8Linear, InfinitiesAndNansReachTheirRowAndNoOther) {
  const Int8Product p = {7, {40, 70, 32}};
  Random random(base_seed());
  Int8Operands o(p, random);
  const std::vector<float> whole = compute(stream(), p, o);
  o.x[2 * 70 + 69] = std::numeric_limits<float>::infinity();
  o.x[5 * 70 + 3] = std::nanf("");
  const std::vector<float> out = compute(stream(), p, o);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / 40;
    if (row == 2 || row == 5) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else {
      EXPECT_EQ(out[i], whole[i]);
    }
  }
}

TEST_P(Int8Linear, ZerosGiveTheBias) {
  const Int8Product p = {3, {20, 50}, true};
  Random random(base_seed());
  Int8Operands o(p, random);
  std::fill(o.x.begin(), o.x.end(), 0.0F);
  const std::vector<float> out = compute(stream(), p, o);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], o.bias[i % 20]);
}

TEST(Int8LinearArguments, PathsAreForTheirTypes) {
  const std::vector<float> x(3);
  std::vector<float> out(2);
  const Weight floats(DType::kF32, 2, 3, std::vector<float>(6));
  const Int8Matrix integers =
      Int8Matrix::quantise({2, 3}, [](std::int64_t, float* row) { std::fill_n(row, 3, 1.0F); });
  LinearArgs args = {.x = TensorView<const float, 2>(x.data(), {1, 3}),
                     .weight = integers.view(),
                     .bias = {},
                     .out = TensorView<float, 2>(out.data(), {1, 2})};
  EXPECT_THROW(linear_by(LinearPath::kTiled, args), Error);
  args.weight = floats.view();
  EXPECT_THROW(linear_by(LinearPath::kInt8, args), Error);
}

}  // namespace
}  // namespace longhaul::test
