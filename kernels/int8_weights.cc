#include "kernels/int8_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

constexpr std::int64_t kStepBytes = kInt8Panel * kInt8Step;
constexpr std::uint8_t kZero = 128;

std::int64_t panels_of(const Int8Shape& s) { return ceil_div(s.n_out, kInt8Panel); }
std::int64_t steps_of(const Int8Shape& s) { return ceil_div(s.n_in, kInt8Step); }

// The place of an output's first step.
std::uint8_t* row_at(std::uint8_t* panels, const Int8Shape& s, std::int64_t output) {
  return panels + output / kInt8Panel * steps_of(s) * kStepBytes + output % kInt8Panel * kInt8Step;
}

// Bytes of one output, one after the other, to their places.
void scatter(const std::uint8_t* row, const Int8Shape& s, std::uint8_t* to) {
  const std::int64_t n_steps = steps_of(s);
  for (std::int64_t step = 0; step < n_steps; ++step) {
    std::memcpy(to + step * kStepBytes, row + step * kInt8Step, kInt8Step);
  }
}

// Calls fill(output, row, buffer) for every output; what `row` then holds goes to its place.
template <typename Fill>
void for_each_output(const Int8Shape& s, std::uint8_t* panels, const Fill& fill) {
  parallel_rows(panels_of(s), kInt8Panel * s.n_in, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(steps_of(s) * kInt8Step), kZero);
    std::vector<float> buffer(static_cast<std::size_t>(s.n_in));
    for (std::int64_t output = begin * kInt8Panel; output < std::min(s.n_out, end * kInt8Panel);
         ++output) {
      fill(output, row.data(), buffer.data());
      scatter(row.data(), s, row_at(panels, s, output));
    }
  });
}

// Returns the scale.
float quantise_row(const float* weights, std::int64_t n, std::int64_t output, std::uint8_t* row) {
  std::uint32_t bits = 0;  // of the largest magnitude; infinities and NaNs are larger than all
  for (std::int64_t i = 0; i < n; ++i) {
    bits = std::max(bits, std::bit_cast<std::uint32_t>(weights[i]) & 0x7fffffffU);
  }
  const float largest = std::bit_cast<float>(bits);
  if (!std::isfinite(largest)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("output {} has a weight that is infinite or no number", output));
  }
  // So small, weights are as good as zero, and a scale would be a denormal.
  const bool vanishes = largest < 1e-35F;
  // In doubles the quotient is exact enough to tell ties, of which bf16 weights have many. Adding
  // 1.5 * 2^52 rounds to an integer, which then stands in the lowest bits.
  const double divisor = vanishes ? 1.0 : static_cast<double>(largest);
  const double factor = vanishes ? 0.0 : 127.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double quotient = static_cast<double>(weights[i]) * factor / divisor;
    const auto q = std::bit_cast<std::uint64_t>(quotient + 0x1.8p52);
    row[i] = static_cast<std::uint8_t>(q + kZero);
  }
  return vanishes ? 0.0F : largest / 127.0F;
}

}  // namespace

Int8Matrix::Int8Matrix(const Int8Shape& shape) : shape_(shape) {
  require(shape.n_out > 0 && shape.n_in > 0 && shape.group > 0 && shape.group % kInt8Step == 0 &&
              shape.group <= 32768,  // sums of products of a group stay below 2^31
          fmt::format("int8 weights [{}, {}] with activations in groups of {}", shape.n_out,
                      shape.n_in, shape.group));
  panels_ = Tensor<std::uint8_t, 1>({panels_of(shape) * steps_of(shape) * kStepBytes});
  scales_ = Tensor<float, 1>({panels_of(shape) * kInt8Panel});
}

Int8Matrix Int8Matrix::quantise(const Int8Shape& shape, const ReadRow& read_row) {
  Int8Matrix matrix(shape);
  for_each_output(shape, matrix.panels_.data(),
                  [&](std::int64_t output, std::uint8_t* row, float* weights) {
                    read_row(output, weights);
                    matrix.scales_.data()[output] = quantise_row(weights, shape.n_in, output, row);
                  });
  return matrix;
}

Int8Matrix Int8Matrix::pack(const Int8Shape& shape, const ReadIntegers& read_row,
                            const std::function<float(std::int64_t output)>& scale) {
  Int8Matrix matrix(shape);
  for_each_output(shape, matrix.panels_.data(),
                  [&](std::int64_t output, std::uint8_t* row, float* /*unused*/) {
                    read_row(output, reinterpret_cast<std::int8_t*>(row));
                    for (std::int64_t i = 0; i < shape.n_in; ++i) row[i] = row[i] ^ kZero;
                    matrix.scales_.data()[output] = scale(output);
                  });
  return matrix;
}

WeightView Int8Matrix::view() const {
  return {.data = panels_.data(),
          .dtype = DType::kI8,
          .n_out = shape_.n_out,
          .n_in = shape_.n_in,
          .row_stride = steps_of(shape_) * kInt8Step,
          .scales = scales_.data(),
          .group = shape_.group};
}

std::int64_t Int8Matrix::bytes() const {
  return panels_.size() + scales_.size() * static_cast<std::int64_t>(sizeof(float));
}

float int8_weight(const WeightView& weight, std::int64_t output, std::int64_t input) {
  const std::int64_t lane = weight.first_lane + output;
  const auto* byte = static_cast<const std::uint8_t*>(weight.data) +
                     lane / kInt8Panel * kInt8Panel * weight.stride() +
                     input / kInt8Step * kStepBytes + lane % kInt8Panel * kInt8Step +
                     input % kInt8Step;
  return weight.scales[lane] * static_cast<float>(static_cast<int>(*byte) - kZero);
}

}  // namespace longhaul
