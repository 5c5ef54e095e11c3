// linear by each of its paths, with each instruction set and weight type.
#include "kernels/linear.h"

#include <limits>
#include <optional>
#include <string>

#include "kernels/cpu/linear_paths.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/threads.h"
#include "kernels/reference/operators.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

// A path of the CPU, or what linear() does on the stream's device.
using Way = std::optional<LinearPath>;

std::string describe(Way way) { return way ? std::string(name_of(*way)) : "linear"; }

class Linear : public EachDevice {
 protected:
  // Those that can run now.
  std::vector<Way> ways(DType dtype) const {
    if (stream().device() == Device::kCuda) return {Way()};
    std::vector<Way> out = {LinearPath::kTiled, LinearPath::kFewRows};
    const bool can_bf16 = active_isa() >= Isa::kAvx512Bf16;
    if (onednn::in_build() && (dtype == DType::kF32 || can_bf16)) {
      out.emplace_back(LinearPath::kOneDnn);
    }
    if (dtype == DType::kBf16 && has_linear_pairs()) {
      out.insert(out.end(), {LinearPath::kFewRowsOfPairs, LinearPath::kTiledPairs});
    }
    if (dtype == DType::kBf16 && has_linear_amx()) {
      out.insert(out.end(), {LinearPath::kFewRowsAmx, LinearPath::kTiledAmx});
    }
    return out;
  }
};
LONGHAUL_ON_EACH_DEVICE(Linear);

void run(StreamRef stream, Way way, const LinearArgs& args) {
  if (way) return linear_by(*way, args);
  linear(stream, args);
}

struct Product {
  std::int64_t n_tokens;
  std::int64_t n_in;
  std::int64_t n_out;
  DType dtype = DType::kF32;
  bool bias = false;
  LinearOutput output = LinearOutput::kOverwrite;
};

// x and the weights, in one way, from an output full of ones.
std::vector<float> compute(StreamRef stream, Way way, const Product& p, const std::vector<float>& x,
                           const Weight& weight, const std::vector<float>& bias) {
  const Memory out(stream, p.n_tokens * p.n_out, 1.0F);
  const Memory x_there(stream, x);
  const Memory bias_there(stream, bias);
  const Memory<std::byte> weight_there(stream, weight.bytes());
  run(stream, way,
      {.x = TensorView<const float, 2>(x_there.data(), {p.n_tokens, p.n_in}),
       .weight = weight.view_at(weight_there.data()),
       .bias = bias_there.span(),
       .out = TensorView<float, 2>(out.data(), {p.n_tokens, p.n_out}),
       .output = p.output});
  return out.values();
}

// The reference with x rounded as the contract says.
std::vector<double> expected(const Product& p, const std::vector<float>& x, const Weight& weight,
                             const std::vector<float>& bias) {
  const bool rounds = p.dtype == DType::kBf16;
  std::vector<double> out = reference::linear(widened(rounds ? rounded_to_bf16(x) : x),
                                              widened(weight.values), p.n_in, widened(bias));
  if (p.output == LinearOutput::kAccumulate) {
    for (double& value : out) value += 1.0;
  }
  return out;
}

// All ways that can run, against one reference.
void expect_reference(StreamRef stream, const Product& p, const std::vector<Way>& ways) {
  Random random(base_seed());
  const std::vector<float> x = random.normals(p.n_tokens * p.n_in);
  const Weight weight(p.dtype, p.n_out, p.n_in, random.normals(p.n_out * p.n_in, 0.05));
  const std::vector<float> bias = p.bias ? random.normals(p.n_out) : std::vector<float>{};
  const std::vector<double> want = expected(p, x, weight, bias);
  for (const Way way : ways) {
    // x is rounded on both sides, so also bf16 agrees to float32.
    EXPECT_TRUE(close(compute(stream, way, p, x, weight, bias), want, {1e-5, 2e-5, 1 - 1e-9}))
        << describe(way) << " x [" << p.n_tokens << ", " << p.n_in << "] n_out " << p.n_out << " "
        << name_of(p.dtype) << " bias " << p.bias << " accumulate "
        << (p.output == LinearOutput::kAccumulate);
  }
}

TEST_P(Linear, EveryPathMatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t n_tokens : {1, 2, 3, 4, 5, 7, 8, 9, 33}) {
      for (const std::int64_t n_in : {1, 15, 64, 129, 250}) {
        for (const std::int64_t n_out : {1, 17, 64, 131}) {
          const std::int64_t choice = n_tokens + n_in + n_out;
          expect_reference(stream(),
                           {n_tokens, n_in, n_out, dtype, choice % 2 == 1,
                            choice % 3 == 1 ? LinearOutput::kAccumulate : LinearOutput::kOverwrite},
                           ways(dtype));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(Linear, LongSumsMatchTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t n_tokens : {1, 6, 40}) {
      expect_reference(stream(), {n_tokens, 2500, 90, dtype, true}, ways(dtype));
    }
  }
}

// Sums of small integers are exact in any order: all paths and row counts give the same bits.
TEST_P(Linear, SmallIntegersAreExact) {
  Random random(base_seed());
  const auto integers = [&](std::int64_t n) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<float>(random.integer(-8, 8)));
    return out;
  };
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Product p = {8, 700, 70, dtype, true, LinearOutput::kAccumulate};
    const std::vector<float> x = integers(p.n_tokens * p.n_in);
    const Weight weight(dtype, p.n_out, p.n_in, integers(p.n_out * p.n_in));
    const std::vector<float> bias = integers(p.n_out);
    const std::vector<double> want = expected(p, x, weight, bias);
    for (const Way way : ways(dtype)) {
      EXPECT_EQ(widened(compute(stream(), way, p, x, weight, bias)), want) << describe(way);
    }
  }
}

// A rank's slice of a weight matrix: some of its outputs, some of its inputs.
TEST_P(Linear, SlicesOfWeightsMatchTheReference) {
  Random random(base_seed());
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Weight whole(dtype, 90, 70, random.normals(90 * 70, 0.05));
    const Memory<std::byte> whole_there(stream(), whole.bytes());
    const WeightView slice = whole.view_at(whole_there.data()).outputs({7, 84}).inputs({13, 64});
    std::vector<float> copied;
    for (std::int64_t o = 7; o < 84; ++o) {
      const auto row = whole.values.begin() + o * 70;
      copied.insert(copied.end(), row + 13, row + 64);
    }
    for (const std::int64_t n_tokens : {1, 3, 33}) {
      const Product p = {n_tokens, 51, 77, dtype};
      const std::vector<float> x = random.normals(n_tokens * 51);
      const auto want = expected(p, x, Weight(dtype, 77, 51, copied), {});
      const Memory x_there(stream(), x);
      for (const Way way : ways(dtype)) {
        const Memory out(stream(), n_tokens * 77, 0.0F);
        run(stream(), way,
            {.x = TensorView<const float, 2>(x_there.data(), {n_tokens, 51}),
             .weight = slice,
             .bias = {},
             .out = TensorView<float, 2>(out.data(), {n_tokens, 77})});
        EXPECT_TRUE(close(out.values(), want, {1e-5, 2e-5, 1 - 1e-9})) << describe(way);
      }
    }
  }
}

TEST_P(Linear, NeitherThreadsNorTimeChangeTheOwnPaths) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Product p = {8, 400, 900, dtype};
    Random random(base_seed());
    const std::vector<float> x = random.normals(p.n_tokens * p.n_in);
    const Weight weight(p.dtype, p.n_out, p.n_in, random.normals(p.n_out * p.n_in));
    for (const Way way : ways(p.dtype)) {
      if (way == LinearPath::kOneDnn) continue;
      set_kernel_threads(1);
      const std::vector<float> one = compute(stream(), way, p, x, weight, {});
      set_kernel_threads(3);
      EXPECT_EQ(one, compute(stream(), way, p, x, weight, {})) << describe(way);
    }
  }
  set_kernel_threads(0);
}

// What lies beside a slice is not multiplied, not even by zero.
TEST_P(Linear, NansBesideASliceStayThere) {
  Random random(base_seed());
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    std::vector<float> values(60 * 110, std::numeric_limits<float>::quiet_NaN());
    std::vector<float> inside;
    for (std::int64_t o = 3; o < 48; ++o) {
      for (std::int64_t i = 5; i < 82; ++i) {
        inside.push_back(static_cast<float>(random.integer(-8, 8)));
        values[static_cast<std::size_t>(o * 110 + i)] = inside.back();
      }
    }
    const Weight whole(dtype, 60, 110, values);
    const Memory<std::byte> whole_there(stream(), whole.bytes());
    const Product p = {37, 77, 45, dtype};
    const std::vector<float> x(static_cast<std::size_t>(p.n_tokens * p.n_in), 2.0F);
    const auto want = expected(p, x, Weight(dtype, 45, 77, inside), {});
    const Memory x_there(stream(), x);
    for (const Way way : ways(dtype)) {
      const Memory out(stream(), p.n_tokens * p.n_out, 0.0F);
      run(stream(), way,
          {.x = TensorView<const float, 2>(x_there.data(), {p.n_tokens, p.n_in}),
           .weight = whole.view_at(whole_there.data()).outputs({3, 48}).inputs({5, 82}),
           .bias = {},
           .out = TensorView<float, 2>(out.data(), {p.n_tokens, p.n_out})});
      EXPECT_EQ(widened(out.values()), want) << describe(way);
    }
  }
}

// More rows, steps and outputs than AMX takes at a time, and none of them a whole number of tiles.
// Both its ways add in the same order, and a row has the same bits beside any other rows.
TEST(LinearByAmx, ManyRowsHaveTheBitsOfOne) {
  if (!has_linear_amx()) GTEST_SKIP() << "no AMX";
  Random random(base_seed());
  const Product p = {549, 1107, 1043, DType::kBf16, true, LinearOutput::kAccumulate};
  const std::vector<float> x = random.normals(p.n_tokens * p.n_in);
  const Weight weight(p.dtype, p.n_out, p.n_in, random.normals(p.n_out * p.n_in, 0.05));
  const std::vector<float> bias = random.normals(p.n_out);
  const std::vector<float> many =
      compute(StreamRef::cpu(), LinearPath::kTiledAmx, p, x, weight, bias);
  EXPECT_TRUE(close(many, expected(p, x, weight, bias), {1e-5, 2e-5, 1 - 1e-9}));
  EXPECT_EQ(compute(StreamRef::cpu(), LinearPath::kFewRowsAmx, p, x, weight, bias), many);
  for (const std::int64_t row : {0, 17, 511, 548}) {
    Product one = p;
    one.n_tokens = 1;
    const auto x_begin = x.begin() + row * p.n_in;
    const auto begin = many.begin() + row * p.n_out;
    for (const LinearPath path : {LinearPath::kFewRowsAmx, LinearPath::kTiledAmx}) {
      EXPECT_EQ(compute(StreamRef::cpu(), path, one, {x_begin, x_begin + p.n_in}, weight, bias),
                std::vector<float>(begin, begin + p.n_out))
          << name_of(path) << " row " << row;
    }
  }
}

TEST(LinearArguments, BadOnesAreRefused) {
  std::vector<float> x(6);
  std::vector<float> out(4);
  const std::vector<float> bias(1);
  const Weight weight(DType::kF32, 2, 3, std::vector<float>(6));
  LinearArgs args = {.x = TensorView<const float, 2>(x.data(), {2, 3}),
                     .weight = weight.view(),
                     .bias = {},
                     .out = TensorView<float, 2>(out.data(), {2, 2})};
  EXPECT_NO_THROW(linear(StreamRef::cpu(), args));
  args.bias = bias;
  EXPECT_THROW(linear(StreamRef::cpu(), args), Error);
  args.bias = {};
  args.weight.n_in = 4;
  EXPECT_THROW(linear(StreamRef::cpu(), args), Error);
  args.weight = weight.view();
  args.weight.dtype = DType::kF16;
  EXPECT_THROW(linear(StreamRef::cpu(), args), Error);
  args.weight = weight.view();
  args.out = TensorView<float, 2>(out.data(), {2, 2}, {1, 2});
  EXPECT_THROW(linear(StreamRef::cpu(), args), Error);
}

TEST(LinearArguments, NoRowsAreFine) {
  const Weight weight(DType::kF32, 2, 3, std::vector<float>(6));
  linear(StreamRef::cpu(), {.x = TensorView<const float, 2>(nullptr, {0, 3}),
                            .weight = weight.view(),
                            .bias = {},
                            .out = TensorView<float, 2>(nullptr, {0, 2})});
}

}  // namespace
}  // namespace longhaul::test
