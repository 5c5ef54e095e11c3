// linear with fp8 weights: every instruction set against the double reference, every code, and the
// laws that slices and orders of sums keep.
#include <cmath>
#include <limits>

#include "kernels/cpu/linear_paths.h"
#include "kernels/cpu/threads.h"
#include "kernels/fp8_weights.h"
#include "kernels/linear.h"
#include "kernels/reference/operators.h"
#include "tests/support/compare.h"
#include "tests/support/tolerance.h"
#include "tests/unit/kernels/each_isa.h"

namespace longhaul::test {
namespace {

class Fp8Linear : public EachIsa {};
LONGHAUL_WITH_EACH_ISA(Fp8Linear);

constexpr LinearPath kPaths[] = {LinearPath::kFewRowsFp8, LinearPath::kTiledFp8};

struct Fp8Product {
  std::int64_t n_tokens;
  std::int64_t n_out;
  std::int64_t n_in;
  Fp8Layout layout = {};
  bool bias = false;
  LinearOutput output = LinearOutput::kOverwrite;
};

// Random x, codes without NaN, and scales.
struct Fp8Operands {
  std::vector<float> x, bias, scales;
  std::vector<std::uint8_t> codes;
  WeightView weight;

  Fp8Operands(const Fp8Product& p, Random& random)
      : x(random.normals(p.n_tokens * p.n_in)),
        bias(p.bias ? random.normals(p.n_out) : std::vector<float>{}),
        scales(random.normals(
            ceil_div(p.n_out, p.layout.block_out) * ceil_div(p.n_in, p.layout.block_in), 0.02)) {
    for (const float w : random.normals(p.n_out * p.n_in)) codes.push_back(to_e4m3(w).bits);
    weight = fp8_view(codes.data(), p.n_out, p.n_in, scales.data(), p.layout);
  }
};

// From an output full of ones.
std::vector<float> product(std::int64_t n_tokens, const float* x, const WeightView& weight,
                           LinearPath path, const std::vector<float>& bias = {},
                           LinearOutput output = LinearOutput::kOverwrite) {
  std::vector<float> out(static_cast<std::size_t>(n_tokens * weight.n_out), 1.0F);
  linear_by(path, {.x = TensorView<const float, 2>(x, {n_tokens, weight.n_in}),
                   .weight = weight,
                   .bias = bias,
                   .out = TensorView<float, 2>(out.data(), {n_tokens, weight.n_out}),
                   .output = output});
  return out;
}

std::vector<double> exact_weights(const WeightView& w) {
  std::vector<double> out;
  for (std::int64_t o = 0; o < w.n_out; ++o) {
    for (std::int64_t i = 0; i < w.n_in; ++i)
      out.push_back(static_cast<double>(fp8_weight(w, o, i)));
  }
  return out;
}

void expect_reference(const Fp8Product& p) {
  Random random(base_seed());
  const Fp8Operands o(p, random);
  std::vector<double> want =
      reference::linear(widened(o.x), exact_weights(o.weight), p.n_in, widened(o.bias));
  if (p.output == LinearOutput::kAccumulate) {
    for (double& value : want) value += 1.0;
  }
  for (const LinearPath path : kPaths) {
    EXPECT_TRUE(close(product(p.n_tokens, o.x.data(), o.weight, path, o.bias, p.output), want,
                      operator_tolerance(DType::kF32)))
        << name_of(path) << ": x [" << p.n_tokens << ", " << p.n_in << "] n_out " << p.n_out
        << " in blocks of " << p.layout.block_out << " x " << p.layout.block_in;
  }
}

// One scale for everything: the weights are the codes, exactly.
TEST_P(Fp8Linear, EveryCodeHasItsValue) {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const bool is_nan = (i & 0x7f) == 0x7f;
    codes[i] = is_nan ? std::uint8_t{0} : static_cast<std::uint8_t>(i);
  }
  const std::vector<float> scales(2, 1.0F);
  const WeightView weight = fp8_view(codes.data(), 1, 256, scales.data());
  std::vector<float> x(256 * 256, 0.0F);  // a row for each input
  for (std::size_t i = 0; i < 256; ++i) x[i * 257] = 1.0F;
  for (const LinearPath path : kPaths) {
    const std::vector<float> out = product(256, x.data(), weight, path);
    for (std::size_t i = 0; i < 256; ++i)
      EXPECT_EQ(out[i], to_float(Float8E4m3{codes[i]})) << name_of(path) << " code " << i;
  }
}

TEST_P(Fp8Linear, MatchesTheReference) {
  const Fp8Layout layouts[] = {{}, {1, 320}, {24, 64}, {1000, 320}};
  for (std::int64_t n_tokens = 1; n_tokens <= 9; ++n_tokens) {
    for (const std::int64_t n_in : {1, 7, 64, 129, 250}) {
      for (const std::int64_t n_out : {1, 4, 17, 64, 131}) {
        const std::int64_t choice = n_tokens + n_in + n_out;
        expect_reference({n_tokens, n_out, n_in, layouts[choice % 4], choice % 2 == 1,
                          choice % 5 == 1 ? LinearOutput::kAccumulate : LinearOutput::kOverwrite});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Fp8Linear, ManyRowsAndLongSumsMatchTheReference) {
  for (const std::int64_t n_tokens : {1, 30, 70}) expect_reference({n_tokens, 150, 3000, {}, true});
}

// What a rank has of a layer: slices that begin and end anywhere.
TEST_P(Fp8Linear, SlicesMatchTheReference) {
  Random random(base_seed());
  for (const std::int64_t n_tokens : {1, 3, 30}) {
    const Fp8Product p = {n_tokens, 200, 400};
    const Fp8Operands o(p, random);
    for (const Extent inputs :
         {Extent{0, 24}, Extent{24, 300}, Extent{129, 131}, Extent{390, 400}}) {
      const WeightView slice = o.weight.outputs({70, 190}).inputs(inputs);
      std::vector<float> x;
      for (std::int64_t t = 0; t < n_tokens; ++t) {
        const auto row = o.x.begin() + t * p.n_in;
        x.insert(x.end(), row + inputs.begin, row + inputs.end);
      }
      const auto want = reference::linear(widened(x), exact_weights(slice), slice.n_in);
      for (const LinearPath path : kPaths)
        EXPECT_TRUE(
            close(product(n_tokens, x.data(), slice, path), want, operator_tolerance(DType::kF32)))
            << name_of(path) << ", inputs from " << inputs.begin;
    }
  }
}

// Rows with one scale each, as published files have them, may be cut as if they began at the slice.
TEST_P(Fp8Linear, ASliceWithinABlockSkipsNothing) {
  Random random(base_seed());
  const Fp8Operands o({3, 20, 400, {1, 448}}, random);
  const WeightView slice = o.weight.inputs({130, 390}).inputs({10, 210});
  EXPECT_EQ(slice.first_input, 0);
  EXPECT_EQ(o.weight.inputs({0, 400}).inputs({140, 340}).first_input, 0);
  const std::vector<float> x = random.normals(3 * 200);
  const auto want = reference::linear(widened(x), exact_weights(slice), slice.n_in);
  for (const LinearPath path : kPaths)
    EXPECT_TRUE(close(product(3, x.data(), slice, path), want, operator_tolerance(DType::kF32)))
        << name_of(path);
  const Fp8Operands blocks({3, 20, 400}, random);
  EXPECT_EQ(blocks.weight.inputs({100, 200}).first_input, 100);
}

// A rank's outputs have the bits of the whole, and a row those that it has beside any others.
TEST_P(Fp8Linear, BitsDependOnThePathAlone) {
  Random random(base_seed());
  const Fp8Product p = {33, 200, 500, {}, true};
  const Fp8Operands o(p, random);
  for (const LinearPath path : kPaths) {
    const std::vector<float> all = product(p.n_tokens, o.x.data(), o.weight, path, o.bias);
    for (const int n_threads : {1, 3}) {
      set_kernel_threads(n_threads);
      for (const std::int64_t n_rows : {1, 2, 3, 5, 11}) {
        for (std::int64_t row = 0; row + n_rows <= p.n_tokens; row += n_rows) {
          const auto part = product(n_rows, o.x.data() + row * p.n_in, o.weight, path, o.bias);
          const auto first = all.begin() + row * p.n_out;
          ASSERT_EQ(part, std::vector<float>(first, first + n_rows * p.n_out))
              << name_of(path) << ", " << n_rows << " rows from " << row;
        }
      }
    }
    const WeightView slice = o.weight.outputs({7, 150});
    const std::vector<float> bias(o.bias.begin() + 7, o.bias.begin() + 150);
    const auto part = product(p.n_tokens, o.x.data(), slice, path, bias);
    for (std::int64_t t = 0; t < p.n_tokens; ++t) {
      for (std::int64_t i = 0; i < slice.n_out; ++i) {
        ASSERT_EQ(part[static_cast<std::size_t>(t * slice.n_out + i)],
                  all[static_cast<std::size_t>(t * p.n_out + 7 + i)])
            << name_of(path);
      }
    }
  }
}

TEST_P(Fp8Linear, AnOrderOfSumsIsAPathForAnyNumberOfRows) {
  for (const std::int64_t n_rows : {1, 24, 25, 500}) {
    EXPECT_EQ(linear_path(n_rows, DType::kF8E4m3, SumOrder::kOfFewRows), LinearPath::kFewRowsFp8);
    EXPECT_EQ(linear_path(n_rows, DType::kF8E4m3, SumOrder::kOfManyRows), LinearPath::kTiledFp8);
  }
}

// What is no number must be seen.
TEST_P(Fp8Linear, InfinitiesAndNansReachTheirRowAndNoOther) {
  Random random(base_seed());
  const Fp8Product p = {7, 40, 70};
  Fp8Operands o(p, random);
  for (const LinearPath path : kPaths) {
    const std::vector<float> whole = product(p.n_tokens, o.x.data(), o.weight, path);
    std::vector<float> x = o.x;
    x[2 * 70 + 69] = std::numeric_limits<float>::infinity();
    x[5 * 70 + 3] = std::nanf("");
    const std::vector<float> out = product(p.n_tokens, x.data(), o.weight, path);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / 40;
      if (row == 2 || row == 5) {
        EXPECT_FALSE(std::isfinite(out[i]));
      } else {
        EXPECT_EQ(out[i], whole[i]);
      }
    }
  }
}

TEST(Fp8LinearArguments, PathsAreForTheirTypes) {
  const std::vector<float> x(3), scales(1), floats(6);
  const std::vector<std::uint8_t> codes(6);
  std::vector<float> out(2);
  LinearArgs args = {.x = TensorView<const float, 2>(x.data(), {1, 3}),
                     .weight = fp8_view(codes.data(), 2, 3, scales.data()),
                     .bias = {},
                     .out = TensorView<float, 2>(out.data(), {1, 2})};
  EXPECT_THROW(linear_by(LinearPath::kFewRows, args), Error);
  EXPECT_THROW(linear_by(LinearPath::kInt8, args), Error);
  args.weight = {floats.data(), DType::kF32, 2, 3};
  EXPECT_THROW(linear_by(LinearPath::kFewRowsFp8, args), Error);
}

}  // namespace
}  // namespace longhaul::test
