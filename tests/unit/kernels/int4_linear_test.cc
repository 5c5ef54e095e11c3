// linear with int4 weights: every instruction set and the GPU against the double reference, and the
// laws that results have the same bits everywhere, beside any other rows, in slices.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/linear_paths.h"
#include "kernels/cpu/threads.h"
#include "kernels/int4_weights.h"
#include "kernels/reference/operators.h"
#include "tests/support/compare.h"
#include "tests/support/tolerance.h"
#include "tests/unit/kernels/weight_there.h"

namespace longhaul::test {
namespace {

struct Int4Product;

class Int4Linear : public EachDevice {
 protected:
  void expect_reference(const Int4Product& p) const;
  void expect_bits_of_baseline(const Int4Product& p) const;
  void expect_slices_add_up(const Int4Product& p, const std::vector<Extent>& slices) const;
};
LONGHAUL_ON_EACH_DEVICE(Int4Linear);

struct Int4Product {
  std::int64_t n_tokens;
  Int8Shape shape;
  Int4Layout layout = {};
  bool bias = false;
  LinearOutput output = LinearOutput::kOverwrite;
};

Int4Matrix matrix_of(const Int4Product& p, const std::vector<float>& weight) {
  const auto read_row = [&](std::int64_t output, float* row) {
    std::copy_n(weight.begin() + output * p.shape.n_in, p.shape.n_in, row);
  };
  return Int4Matrix::quantise(p.shape, read_row, p.layout);
}

// Random x and weights; a few activations far larger than the others, as trained models have.
struct Int4Operands {
  std::vector<float> x, bias;
  Int4Matrix matrix;

  Int4Operands(const Int4Product& p, Random& random)
      : x(random.normals(p.n_tokens * p.shape.n_in)),
        bias(p.bias ? random.normals(p.shape.n_out) : std::vector<float>{}),
        matrix(matrix_of(p, random.normals(p.shape.n_out * p.shape.n_in, 0.05))) {
    for (std::size_t i = 0; i < x.size(); i += 97) x[i] *= 30.0F;
  }
};

std::vector<float> product(StreamRef stream, const Int4Product& p, const Int4Operands& o) {
  const WeightThere weight(stream, o.matrix.view());
  return product_there(stream, o.x, weight.view(), o.bias, p.output);
}

std::vector<double> expected(const Int4Product& p, const Int4Operands& o) {
  std::vector<double> weight;
  for (std::int64_t output = 0; output < p.shape.n_out; ++output) {
    for (std::int64_t input = 0; input < p.shape.n_in; ++input)
      weight.push_back(static_cast<double>(int4_weight(o.matrix.view(), output, input)));
  }
  std::vector<double> out =
      reference::linear(reference::quantised(o.x, p.shape.n_in, p.shape.group), weight,
                        p.shape.n_in, widened(o.bias));
  if (p.output == LinearOutput::kAccumulate) {
    for (double& value : out) value += 1.0;
  }
  return out;
}

void Int4Linear::expect_reference(const Int4Product& p) const {
  Random random(base_seed());
  const Int4Operands o(p, random);
  EXPECT_TRUE(close(product(stream(), p, o), expected(p, o), operator_tolerance(DType::kF32)))
      << "x [" << p.n_tokens << ", " << p.shape.n_in << "] n_out " << p.shape.n_out
      << " activations in groups of " << p.shape.group << ", weights of " << p.layout.group;
}

TEST_P(Int4Linear, MatchesTheReference) {
  for (std::int64_t n_tokens = 1; n_tokens <= 17; ++n_tokens) {
    for (const std::int64_t n_in : {1, 7, 32, 129, 250}) {
      for (const std::int64_t n_out : {1, 16, 17, 64, 131}) {
        const std::int64_t choice = n_tokens + n_in + n_out;
        const std::int64_t groups[] = {kInt8Group, 8, 24, 64, 104};
        expect_reference({n_tokens,
                          {n_out, n_in, groups[choice % 5]},
                          {.group = std::int64_t{32} << choice % 3},
                          choice % 2 == 1,
                          choice % 4 == 1 ? LinearOutput::kAccumulate : LinearOutput::kOverwrite});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Int4Linear, LongSumsMatchTheReference) {
  for (const std::int64_t n_tokens : {1, 9, 40}) expect_reference({n_tokens, {90, 3000}, {}, true});
  expect_reference({7, {33, 3000, 1024}, {.group = 128}});
}

// More rows and outputs than one task takes.
TEST_P(Int4Linear, ManyRowsMatchTheReference) { expect_reference({600, {150, 70, 32}, {}, true}); }

// The largest codes and activations, whose sums of 16 bits are as large as they get.
TEST_P(Int4Linear, TheLargestIntegersDoNotOverflow) {
  constexpr std::int64_t kIn = 4096;
  const Int4Product p = {1, {17, kIn, kIn}};
  std::vector<float> largest(17 * kIn, 7.0F);
  for (std::size_t i = 0; i < largest.size(); i += 32) largest[i] = -8.0F;
  const Int4Matrix matrix = matrix_of(p, largest);
  const WeightThere weight(stream(), matrix.view());
  for (const float sign : {1.0F, -1.0F}) {
    const std::vector<float> x(kIn, sign);
    for (const float value : product_there(stream(), x, weight.view()))
      EXPECT_NEAR(value, sign * kIn / 32 * (31 * 7 - 8), 1e-5 * kIn);
  }
}

void Int4Linear::expect_bits_of_baseline(const Int4Product& p) const {
  Random random(base_seed());
  const Int4Operands o(p, random);
  const std::vector<float> here = product(stream(), p, o);
  const Isa isa = active_isa();
  set_active_isa(Isa::kBaseline);
  EXPECT_EQ(here, product(StreamRef::cpu(), p, o))
      << p.n_tokens << " rows, groups of " << p.shape.group;
  set_active_isa(isa);
}

TEST_P(Int4Linear, HasTheBitsOfTheBaseline) {
  for (const std::int64_t n_tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 70}) {
    expect_bits_of_baseline({n_tokens, {90, 700}, {}, true, LinearOutput::kAccumulate});
    expect_bits_of_baseline({n_tokens, {200, 500, 104}, {.group = 64}, n_tokens % 2 == 0});
  }
}

// As attention's outputs have: all that the query heads of a KV head give are a group of
// activations. The last ones end within a group, within 128 inputs and within a run.
TEST_P(Int4Linear, LargeGroupsHaveTheBitsOfTheBaseline) {
  for (const std::int64_t n_tokens : {1, 8, 9, 17, 32, 33, 130}) {
    expect_bits_of_baseline({n_tokens, {90, 1536, 4 * kInt8Group}, {.group = 128}, true});
    expect_bits_of_baseline(
        {n_tokens, {40, 1700, 3 * kInt8Group}, {}, false, LinearOutput::kAccumulate});
  }
}

// Enough rows and outputs for the GPU's largest tiles.
TEST_P(Int4Linear, LargeTilesHaveTheBitsOfTheBaseline) {
  expect_bits_of_baseline({300, {600, 300}, {}, true, LinearOutput::kAccumulate});
}

// More outputs and inputs for one thread than AMX keeps in the second cache.
TEST_P(Int4Linear, ManyOutputsOfOneThreadHaveTheBitsOfTheBaseline) {
  set_kernel_threads(1);
  expect_bits_of_baseline({70, {2100, 700}, {}, true});
  expect_bits_of_baseline({70, {2100, 700}, {.group = 64}});
  set_kernel_threads(0);
}

TEST_P(Int4Linear, ARowDoesNotDependOnTheRowsBesideItNorOnThreads) {
  const Int4Product p = {100, {200, 600}, {}, true};
  Random random(base_seed());
  const Int4Operands o(p, random);
  const std::vector<float> all = product(stream(), p, o);
  const WeightThere weight(stream(), o.matrix.view());
  for (const int n_threads : {1, 3}) {
    set_kernel_threads(n_threads);
    for (const std::int64_t n_rows : {1, 2, 4, 5, 7, 17, 30}) {
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

// A rank's outputs have the bits of the whole.
TEST_P(Int4Linear, SlicesOfOutputsHaveTheBitsOfTheWhole) {
  Random random(base_seed());
  for (const std::int64_t n_tokens : {1, 3, 33}) {
    const Int4Product p = {n_tokens, {90, 70, 16}};
    const Int4Operands o(p, random);
    const WeightThere weight(stream(), o.matrix.view());
    const std::vector<float> whole = product(stream(), p, o);
    for (const Extent outputs : {Extent{2, 7}, Extent{7, 84}, Extent{16, 32}, Extent{81, 90}}) {
      const WeightView slice =
          weight.view().outputs({2, 90}).outputs({outputs.begin - 2, outputs.end - 2});
      const std::vector<float> part = product_there(stream(), o.x, slice);
      for (std::int64_t t = 0; t < n_tokens; ++t) {
        for (std::int64_t i = 0; i < slice.n_out; ++i) {
          ASSERT_EQ(part[static_cast<std::size_t>(t * slice.n_out + i)],
                    whole[static_cast<std::size_t>(t * p.shape.n_out + outputs.begin + i)]);
        }
      }
    }
  }
}

// A rank's inputs, also such as begin within a group of weights, give sums that add up to the
// whole.
void Int4Linear::expect_slices_add_up(const Int4Product& p,
                                      const std::vector<Extent>& slices) const {
  Random random(base_seed());
  const Int4Operands o(p, random);
  const WeightThere weight(stream(), o.matrix.view());
  const std::vector<float> whole = product(stream(), p, o);
  std::vector<float> sum(whole.size(), 0.0F);
  for (const Extent inputs : slices) {
    std::vector<float> x;
    for (std::int64_t t = 0; t < p.n_tokens; ++t) {
      const auto row = o.x.begin() + t * p.shape.n_in;
      x.insert(x.end(), row + inputs.begin, row + inputs.end);
    }
    const WeightView behind = weight.view().inputs({inputs.begin, p.shape.n_in});
    const auto part = product_there(stream(), x, behind.inputs({0, inputs.size()}));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  EXPECT_TRUE(close(sum, whole, operator_tolerance(DType::kF32)))
      << p.n_tokens << " rows, activations in groups of " << p.shape.group << ", weights of "
      << p.layout.group;
}

TEST_P(Int4Linear, SlicesOfInputsAddUpToTheWhole) {
  for (const std::int64_t n_tokens : {1, 3, 33}) {
    for (const std::int64_t group : {32, 64}) {
      expect_slices_add_up({n_tokens, {90, 166, 24}, {.group = group}},
                           {{0, 24}, {24, 144}, {144, 166}});
    }
    for (const std::int64_t group : {32, 96, 256}) {
      expect_slices_add_up({n_tokens, {40, 700, kInt8Group}, {.group = group}},
                           {{0, 128}, {128, 640}, {640, 700}});
    }
  }
}

// What is no number must be seen, not rounded away.
TEST_P(Int4Linear, InfinitiesAndNansReachTheirRowAndNoOther) {
  const Int4Product p = {7, {40, 70, 32}};
  Random random(base_seed());
  Int4Operands o(p, random);
  const std::vector<float> whole = product(stream(), p, o);
  o.x[2 * 70 + 69] = std::numeric_limits<float>::infinity();
  o.x[5 * 70 + 3] = std::nanf("");
  const std::vector<float> out = product(stream(), p, o);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / 40;
    if (row == 2 || row == 5) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else {
      EXPECT_EQ(out[i], whole[i]);
    }
  }
}

TEST(Int4LinearArguments, PathsAreForTheirTypes) {
  const std::vector<float> x(3);
  std::vector<float> out(2);
  const Int4Matrix codes = Int4Matrix::filled({2, 3}, 1.0F);
  const Int8Matrix bytes =
      Int8Matrix::quantise({2, 3}, [](std::int64_t, float* row) { std::fill_n(row, 3, 1.0F); });
  LinearArgs args = {.x = TensorView<const float, 2>(x.data(), {1, 3}),
                     .weight = codes.view(),
                     .bias = {},
                     .out = TensorView<float, 2>(out.data(), {1, 2})};
  EXPECT_THROW(linear_by(LinearPath::kInt8, args), Error);
  args.weight = bytes.view();
  EXPECT_THROW(linear_by(LinearPath::kInt4, args), Error);
}

}  // namespace
}  // namespace longhaul::test
