// linear with fp8 weights on GPUs, and with inputs that are rounded to fp8 on all devices: against
// references in double precision over the values that codes and scales stand for.
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/fp8_weights.h"
#include "kernels/reference/operators.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/weight_there.h"

namespace longhaul::test {
namespace {

// A random matrix and its copy on the stream's device.
class Fp8There {
 public:
  Fp8There(StreamRef stream, std::int64_t n_out, std::int64_t n_in, const Fp8Layout& layout,
           Random& random)
      : scales_(random.normals(ceil_div(n_out, layout.block_out) * ceil_div(n_in, layout.block_in),
                               0.02)) {
    for (const float w : random.normals(n_out * n_in)) codes_.push_back(to_e4m3(w).bits);
    here = fp8_view(codes_.data(), n_out, n_in, scales_.data(), layout);
    copy_.emplace(stream, here);
    there = copy_->view();
  }
  WeightView here;
  WeightView there;

 private:
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
  std::optional<WeightThere> copy_;
};

std::vector<double> values_of(const WeightView& w) {
  std::vector<double> out;
  for (std::int64_t o = 0; o < w.n_out; ++o) {
    for (std::int64_t i = 0; i < w.n_in; ++i)
      out.push_back(static_cast<double>(fp8_weight(w, o, i)));
  }
  return out;
}

class Fp8OnDevices : public EachDevice {
 protected:
  // Of inputs that are as they are, GPUs round them to bf16.
  void expect_reference(const std::vector<float>& x, const WeightView& here,
                        const WeightView& there, const std::vector<float>& bias,
                        LinearOutput output) const {
    std::vector<float> entering = x;
    for (std::int64_t row = 0; row * here.n_in < std::ssize(x); ++row) {
      const std::span<float> values = std::span(entering).subspan(
          static_cast<std::size_t>(row * here.n_in), static_cast<std::size_t>(here.n_in));
      if (here.fp8.inputs == Fp8Inputs::kQuantised) round_fp8_inputs(here.first_input, values);
    }
    if (here.fp8.inputs == Fp8Inputs::kAsTheyAre && stream().device() == Device::kCuda) {
      for (float& value : entering) value = to_float(to_bf16(value));
    }
    std::vector<double> want =
        reference::linear(widened(entering), values_of(here), here.n_in, widened(bias));
    if (output == LinearOutput::kAccumulate) {
      for (double& value : want) value += 1.0;
    }
    // Sums of products of fp8 are not float32: Hopper's tensor cores keep some 14 bits of them
    // (DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 3.3.2).
    const bool sums_are_short =
        here.fp8.inputs == Fp8Inputs::kQuantised && stream().device() == Device::kCuda;
    EXPECT_TRUE(
        close(product_there(stream(), x, there, bias, output), want,
              sums_are_short ? Tolerance{1e-2, 1e-3, 1 - 1e-6} : Tolerance{1e-4, 1e-4, 1 - 1e-8}))
        << std::ssize(x) / here.n_in << " rows, [" << here.n_out << ", " << here.n_in
        << "] in blocks of " << here.fp8.block_out << " x " << here.fp8.block_in;
  }
};
LONGHAUL_ON_EACH_DEVICE(Fp8OnDevices);

TEST_P(Fp8OnDevices, MatchesTheReference) {
  Random random(base_seed());
  const Fp8Layout layouts[] = {{}, {1, 320}, {24, 64}, {1000, 320}};
  for (const std::int64_t n_tokens : {1, 3, 8, 9, 32, 33, 70}) {
    for (const std::int64_t n_in : {1, 7, 64, 129, 250, 256}) {
      for (const std::int64_t n_out : {1, 17, 64, 131}) {
        const std::int64_t choice = n_tokens + n_in + n_out;
        const Fp8There weight(stream(), n_out, n_in, layouts[choice % 4], random);
        const auto bias = choice % 2 == 1 ? random.normals(n_out) : std::vector<float>{};
        expect_reference(random.normals(n_tokens * n_in), weight.here, weight.there, bias,
                         choice % 5 == 1 ? LinearOutput::kAccumulate : LinearOutput::kOverwrite);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Fp8OnDevices, QuantisedInputsMatchTheReference) {
  Random random(base_seed());
  for (const std::int64_t n_tokens : {1, 8, 31, 33, 36, 75}) {
    for (const std::int64_t n_in : {16, 64, 130, 256, 400}) {
      for (const std::int64_t n_out : {16, 17, 144}) {
        const std::int64_t choice = n_tokens + n_in + n_out;
        const Fp8There weight(stream(), n_out, n_in, {.inputs = Fp8Inputs::kQuantised}, random);
        std::vector<float> x = random.normals(n_tokens * n_in);
        for (std::size_t i = 0; i < x.size(); i += 97) x[i] *= 30.0F;
        std::fill_n(x.begin(), std::min<std::int64_t>(n_in, 128), 0.0F);
        const auto bias = choice % 3 == 1 ? random.normals(n_out) : std::vector<float>{};
        expect_reference(x, weight.here, weight.there, bias,
                         choice % 5 == 1 ? LinearOutput::kAccumulate : LinearOutput::kOverwrite);
        if (HasFailure()) return;
      }
    }
  }
}

// Slices that begin within a block, as ranks of a ring have them.
TEST_P(Fp8OnDevices, SlicesMatchTheReference) {
  Random random(base_seed());
  for (const Fp8Inputs inputs : {Fp8Inputs::kAsTheyAre, Fp8Inputs::kQuantised}) {
    const Fp8There weight(stream(), 320, 400, {.inputs = inputs}, random);
    for (int round = 0; round < 20 * intensity(); ++round) {
      const std::int64_t first_output = random.integer(0, 300);
      const std::int64_t first_input = random.integer(0, 380);
      const Extent outputs{first_output, random.integer(first_output + 1, 320)};
      const Extent columns{first_input, random.integer(first_input + 1, 400)};
      expect_reference(random.normals(random.integer(1, 40) * columns.size()),
                       weight.here.outputs(outputs).inputs(columns),
                       weight.there.outputs(outputs).inputs(columns), {}, LinearOutput::kOverwrite);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Fp8OnDevices, InputsThatAreNoNumbersAreNotForgotten) {
  Random random(base_seed());
  for (const Fp8Inputs inputs : {Fp8Inputs::kAsTheyAre, Fp8Inputs::kQuantised}) {
    const Fp8There weight(stream(), 32, 256, {.inputs = inputs}, random);
    std::vector<float> x = random.normals(40 * 256);
    x[5 * 256 + 130] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = product_there(stream(), x, weight.there);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 32 == 5);
  }
}

}  // namespace
}  // namespace longhaul::test
