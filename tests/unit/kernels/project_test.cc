// project is the operators that it stands for, one after the other: the same bits, with every
// instruction set and on the GPU; of float products on a GPU, whose library orders sums as it
// likes, all but the last bits.
#include "kernels/project.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/cuda/upload_weight.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

using Matrix = TensorView<float, 2>;

// Weights on the stream's device, those of floats one behind the other.
class WeightsThere {
 public:
  WeightsThere(StreamRef stream, DType dtype, std::span<const std::int64_t> n_outs,
               std::int64_t n_in, Random& random) {
    for (const std::int64_t n_out : n_outs) {
      const std::vector<float> values = random.normals(n_out * n_in, 0.1);
      const auto read_row = [&](std::int64_t output, float* row) {
        std::copy_n(values.begin() + output * n_in, n_in, row);
      };
      if (dtype == DType::kI8) {
        views.push_back(
            int8s_.emplace_back(Int8Matrix::quantise({n_out, n_in, kInt8Group}, read_row)).view());
        continue;
      }
      if (dtype == DType::kI4) {
        views.push_back(
            int4s_.emplace_back(Int4Matrix::quantise({n_out, n_in, kInt8Group}, read_row)).view());
        continue;
      }
      WeightView view = {.data = nullptr, .dtype = dtype, .n_out = n_out, .n_in = n_in};
      std::vector<std::byte>& bytes = bytes_.emplace_back();
      for (const float value : values) {
        const BFloat16 rounded = to_bf16(value);
        const auto* from = dtype == DType::kBf16 ? reinterpret_cast<const std::byte*>(&rounded)
                                                 : reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), from, from + size_of(dtype));
      }
      view.data = bytes.data();
      views.push_back(view);
    }
    if (stream.device() == Device::kCpu) return;
    if (!is_integer(dtype)) {
      joined_ = upload_weights(stream.cuda_stream(), views);
      views = joined_.views;
      return;
    }
    for (WeightView& view : views)
      view = uploaded_.emplace_back(upload_weight(stream.cuda_stream(), view)).view;
  }
  std::vector<WeightView> views;

 private:
  std::vector<Int8Matrix> int8s_;
  std::vector<Int4Matrix> int4s_;
  std::vector<std::vector<std::byte>> bytes_;
  UploadedWeights joined_;
  std::vector<UploadedWeight> uploaded_;
};

struct ProjectCase {
  DType dtype;
  std::int64_t n_rows;
  std::int64_t n_in;
  bool has_bias = false;
  LinearOutput output = LinearOutput::kOverwrite;
  std::vector<std::int64_t> n_outs = {40, 16, 24};
  bool of_slices = false;  // with half of each weight's outputs, which do not lie together
};

class Project : public EachDevice {
 protected:
  // `input`, whose memory may be that of `scratch`, against `rows`, which it is.
  void expect_products_of(const ProjectCase& c, const decltype(ProjectArgs::input)& input,
                          const Matrix& scratch, const std::vector<float>& rows);
};
LONGHAUL_ON_EACH_DEVICE(Project);

void Project::expect_products_of(const ProjectCase& c, const decltype(ProjectArgs::input)& input,
                                 const Matrix& scratch, const std::vector<float>& rows) {
  Random random(base_seed());
  WeightsThere weights(stream(), c.dtype, c.n_outs, c.n_in, random);
  for (WeightView& weight : weights.views) {
    if (c.of_slices) weight = weight.outputs({3, 3 + weight.n_out / 2});
  }
  const std::int64_t n_all = std::accumulate(c.n_outs.begin(), c.n_outs.end(), std::int64_t{0});
  const Memory<float> bias(stream(), random.normals(n_all));
  const Memory<float> got(stream(), c.n_rows * n_all, 1.0F);
  const Memory<float> x(stream(), rows);
  const bool is_cpu = stream().device() == Device::kCpu;
  std::vector<ProjectedPart> parts;
  std::vector<std::vector<float>> want;
  std::int64_t column = 0;
  for (const WeightView& weight : weights.views) {
    const std::int64_t n_out = weight.n_out;
    const std::span<const float> own_bias =
        c.has_bias
            ? bias.span().subspan(static_cast<std::size_t>(column), static_cast<std::size_t>(n_out))
            : std::span<float>();
    // Side by side on GPUs, apart on CPUs.
    parts.push_back({.weight = weight,
                     .bias = own_bias,
                     .out = is_cpu ? Matrix(got.data() + c.n_rows * column, {c.n_rows, n_out})
                                   : Matrix(got.data() + column, {c.n_rows, n_out}, {n_all, 1}),
                     .output = c.output});
    const Memory<float> alone(stream(), c.n_rows * n_out, 1.0F);
    linear(stream(), {.x = TensorView<const float, 2>(x.data(), {c.n_rows, c.n_in}),
                      .weight = weight,
                      .bias = own_bias,
                      .out = Matrix(alone.data(), {c.n_rows, n_out}),
                      .output = c.output});
    want.push_back(alone.values());
    column += n_out;
  }
  project(stream(), {.input = input, .rows = scratch, .parts = parts});
  const std::vector<float> all = got.values();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Matrix& out = parts[i].out;
    std::vector<float> own;
    for (std::int64_t row = 0; row < c.n_rows; ++row) {
      const auto begin = all.begin() + (out.data() - got.data()) + row * out.stride(0);
      own.insert(own.end(), begin, begin + out.dim(1));
    }
    if (is_cpu || is_integer(c.dtype)) {
      EXPECT_EQ(own, want[i]) << "part " << i;
    } else {
      EXPECT_TRUE(close(own, want[i], {1e-5, 1e-5, 1 - 1e-9})) << "part " << i;
    }
  }
}

std::vector<ProjectCase> project_cases() {
  std::vector<ProjectCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8, DType::kI4}) {
    cases.push_back({dtype, 1, 48});
    cases.push_back({dtype, 1, 1056, true});
    cases.push_back({dtype, 3, 636, false, LinearOutput::kAccumulate, {33}});
    cases.push_back({dtype, 5, 96, true, LinearOutput::kAccumulate, {16, 70, 3, 16, 32}});
    cases.push_back({dtype, 70, 576});
    // Slices of one shape at equal distances, some of them, or all.
    cases.push_back({dtype, 3, 96, false, LinearOutput::kOverwrite, {80, 32, 32}, true});
    cases.push_back({dtype, 1, 48, false, LinearOutput::kAccumulate, {32, 32, 32, 32, 8}, true});
    cases.push_back({dtype, 2, 48, true, LinearOutput::kAccumulate, {32, 32, 16}, true});
  }
  return cases;
}

std::string describe(const ProjectCase& c) {
  return std::string(name_of(c.dtype)) + " [" + std::to_string(c.n_rows) + ", " +
         std::to_string(c.n_in) + "]";
}

TEST_P(Project, MultipliesRowsAfterTheirNorm) {
  Random random(base_seed());
  for (const ProjectCase& c : project_cases()) {
    SCOPED_TRACE(describe(c));
    const Memory<float> x(stream(), random.normals(c.n_rows * c.n_in, 3.0));
    const Memory<float> weight(stream(), random.normals(c.n_in));
    const Memory<float> scratch(stream(), c.n_rows * c.n_in);
    const Memory<float> normed(stream(), c.n_rows * c.n_in);
    const TensorView<const float, 2> view(x.data(), {c.n_rows, c.n_in});
    rms_norm(stream(), {.x = view,
                        .weight = weight.span(),
                        .eps = 1e-5F,
                        .out = Matrix(normed.data(), {c.n_rows, c.n_in})});
    expect_products_of(c, NormedInput{view, weight.span(), 1e-5F},
                       Matrix(scratch.data(), {c.n_rows, c.n_in}), normed.values());
  }
}

// The gate's memory is the scratch memory; on GPUs it may be columns of a wider matrix.
TEST_P(Project, MultipliesActivations) {
  Random random(base_seed());
  for (const ProjectCase& c : project_cases()) {
    SCOPED_TRACE(describe(c));
    const std::array<std::int64_t, 2> shape = {c.n_rows, c.n_in};
    const Memory<float> both(stream(), random.normals(2 * c.n_rows * c.n_in, 3.0));
    const bool is_cpu = stream().device() == Device::kCpu;
    const std::int64_t stride = is_cpu ? c.n_in : 2 * c.n_in;
    const Matrix gate(both.data(), shape, {stride, 1});
    const Matrix up(both.data() + (is_cpu ? c.n_rows * c.n_in : c.n_in), shape, {stride, 1});
    const Memory<float> rows(stream(), c.n_rows * c.n_in);
    swiglu(stream(), {.gate = gate, .up = up, .out = Matrix(rows.data(), shape)});
    expect_products_of(c, ActivatedInput{gate, up}, gate, rows.values());
  }
}

// A query that saw nothing gives zeros.
TEST_P(Project, MultipliesTheOutputsOfHeads) {
  Random random(base_seed());
  for (const ProjectCase& c : project_cases()) {
    SCOPED_TRACE(describe(c));
    const std::int64_t head_dim = c.n_in / 3;
    SoftmaxState state(c.n_rows, 3, head_dim);
    std::ranges::copy(random.normals(c.n_rows * c.n_in), state.o.data());
    std::ranges::copy(random.normals(c.n_rows * 3, 5.0), state.m.data());
    for (std::int64_t i = 0; i < c.n_rows * 3; ++i)
      state.l.data()[i] = static_cast<float>(random.uniform(1, 2));
    state.m.data()[0] = -std::numeric_limits<float>::infinity();
    state.l.data()[0] = 0.0F;
    const Memory<float> sinks(stream(), random.normals(3));
    const Memory<float> rows(stream(), c.n_rows * c.n_in);
    const StateThere there(stream(), state);
    const AttendedInput input{there.view(), c.has_bias ? sinks.span() : std::span<float>()};
    finish_attention(stream(), {.state = input.state,
                                .sink_logits = input.sink_logits,
                                .out = TensorView<float, 3>(rows.data(), there.view().o.shape())});
    expect_products_of(c, input, Matrix(there.view().o.data(), {c.n_rows, c.n_in}), rows.values());
  }
}

TEST_P(Project, MultipliesRowsThatAreThere) {
  Random random(base_seed());
  for (const ProjectCase& c : project_cases()) {
    SCOPED_TRACE(describe(c));
    const Memory<float> x(stream(), random.normals(c.n_rows * c.n_in, 3.0));
    expect_products_of(c, StoredInput{}, Matrix(x.data(), {c.n_rows, c.n_in}), x.values());
  }
}

TEST_P(Project, RefusesWhatDoesNotFit) {
  Random random(base_seed());
  const std::array<std::int64_t, 1> n_outs = {16};
  const WeightsThere weights(stream(), DType::kF32, n_outs, 48, random);
  const Memory<float> x(stream(), 2 * 48);
  const Memory<float> out(stream(), 2 * 16);
  const TensorView<const float, 2> view(x.data(), {2, 48});
  const Memory<float> norm(stream(), 47);
  const ProjectedPart part = {.weight = weights.views[0], .out = Matrix(out.data(), {2, 16})};
  const Matrix rows(x.data(), {2, 48});
  EXPECT_THROW(
      project(stream(),
              {.input = NormedInput{view, norm.span()}, .rows = rows, .parts = {&part, 1}}),
      Error);
  EXPECT_THROW(project(stream(), {.input = ActivatedInput{view, view}, .rows = rows, .parts = {}}),
               Error);
}

}  // namespace
}  // namespace longhaul::test
