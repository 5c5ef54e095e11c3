// How far matrices of int8 and int4 weights, and what their products give, are from what they were
// made of: the matrices of a layer of Llama-3.2-1B's shape with normal random weights, and normal
// activations of which one in a hundred is twenty times as large. For docs/benchmarks.
// Run: configure with -DLONGHAUL_BENCH=ON, build weight_errors, then   weight_errors
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "kernels/linear.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kTokens = 16;

struct Shape {
  std::string name;
  std::int64_t n_out;
  std::int64_t n_in;
};

std::vector<float> normals(std::int64_t n, float deviation, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& value : out) value = normal(engine);
  return out;
}

double relative(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double off = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += off * off;
    square += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(error / square);
}

std::vector<float> product(const std::vector<float>& x, const WeightView& weight) {
  std::vector<float> out(static_cast<std::size_t>(kTokens * weight.n_out));
  linear(StreamRef::cpu(), {.x = TensorView<const float, 2>(x.data(), {kTokens, weight.n_in}),
                            .weight = weight,
                            .out = TensorView<float, 2>(out.data(), {kTokens, weight.n_out})});
  return out;
}

void print_row(const Shape& shape, std::string_view type, const std::vector<float>& weight,
               const std::vector<float>& held, const std::vector<float>& x,
               const WeightView& view) {
  const std::vector<float> want = product(x, {weight.data(), DType::kF32, shape.n_out, shape.n_in});
  fmt::print("| {} | {} | {:.4f} | {:.4f} |\n", shape.name, type, relative(held, weight),
             relative(product(x, view), want));
}

template <typename WeightOf>
std::vector<float> all_of(const WeightView& view, const WeightOf& weight_of) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(view.n_out * view.n_in));
  for (std::int64_t o = 0; o < view.n_out; ++o) {
    for (std::int64_t i = 0; i < view.n_in; ++i) out.push_back(weight_of(view, o, i));
  }
  return out;
}

void print_errors(const Shape& shape) {
  const std::vector<float> weight = normals(shape.n_out * shape.n_in, 0.02F, 1);
  std::vector<float> x = normals(kTokens * shape.n_in, 1, 2);
  for (std::size_t i = 0; i < x.size(); i += 101) x[i] *= 20;
  const Int8Shape size = {.n_out = shape.n_out, .n_in = shape.n_in};
  const auto read_row = [&](std::int64_t output, float* row) {
    std::copy_n(weight.begin() + output * shape.n_in, shape.n_in, row);
  };
  const Int8Matrix bytes = Int8Matrix::quantise(size, read_row);
  print_row(shape, "int8", weight, all_of(bytes.view(), int8_weight), x, bytes.view());
  for (const std::int64_t group : {32, 64, 128}) {
    const Int4Matrix codes = Int4Matrix::quantise(size, read_row, {.group = group});
    print_row(shape, fmt::format("int4, groups of {}", group), weight,
              all_of(codes.view(), int4_weight), x, codes.view());
  }
}

}  // namespace
}  // namespace longhaul::bench

int main() {
  fmt::print("| matrix | weights | error of weights | error of outputs |\n|---|---|---|---|\n");
  for (const longhaul::bench::Shape& shape :
       {longhaul::bench::Shape{"q, o (2048 x 2048)", 2048, 2048},
        {"k, v (512 x 2048)", 512, 2048},
        {"gate, up (8192 x 2048)", 8192, 2048},
        {"down (2048 x 8192)", 2048, 8192}})
    longhaul::bench::print_errors(shape);
}
