// Compiled without fused multiply-adds (kernels/CMakeLists.txt): the codes are the same everywhere.
#include "kernels/int4_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {
namespace {

constexpr std::int64_t kLineBytes = kInt8Panel * kInt4Line / 2;
constexpr std::uint8_t kZeroCode = 8;
constexpr float kLeast = -8;
constexpr float kMost = 7;
// The largest weight of a group becomes one of these before codes are cut to the range and the
// scale is fitted to them. With 19 instead of 3 the error is 2 % smaller, and loading takes longer.
constexpr float kEnds[] = {-7, -8, -9};
// Sums in as many parts, so that a compiler can take vectors for them.
constexpr std::int64_t kParts = 8;
static_assert(kInt4Run % kParts == 0);

struct GroupFit {
  float scale = 0;  // as f16 has it
  float error = 0;  // sum of squares
};

// Adds f(i, part) over [0, n), n a multiple of kParts, always in the same order.
template <typename F>
float sum_in_parts(std::int64_t n, const F& f) {
  float parts[kParts] = {};
  for (std::int64_t i = 0; i < n; i += kParts) {
    for (std::int64_t p = 0; p < kParts; ++p) parts[p] += f(i + p);
  }
  float sum = 0;
  for (const float part : parts) sum += part;
  return sum;
}

// The nearest integers of [-8, 7] to x * factor.
void round_to(const float* x, std::int64_t n, float factor, float* integers) {
  constexpr float kShift = 0x1.8p23F;  // plus it, a float is an integer
  for (std::int64_t i = 0; i < n; ++i) {
    const float whole = (x[i] * factor + kShift) - kShift;
    integers[i] = std::min(std::max(whole, kLeast), kMost);
  }
}

// The scale that leaves the smallest error with these integers, in f16, and that error.
GroupFit fit(const float* x, const float* integers, std::int64_t n) {
  const float square = sum_in_parts(n, [&](std::int64_t i) { return integers[i] * integers[i]; });
  const float product = sum_in_parts(n, [&](std::int64_t i) { return integers[i] * x[i]; });
  const float scale = to_float(to_f16(product / square));
  const float error = sum_in_parts(n, [&](std::int64_t i) {
    const float off = x[i] - scale * integers[i];
    return off * off;
  });
  return {scale, error};
}

// The largest magnitude with its sign; the first of equal ones. Infinities and NaNs are larger.
float largest_of(const float* x, std::int64_t n) {
  std::uint32_t most = 0;
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU;
    if (magnitude <= most) continue;
    most = magnitude;
    largest = x[i];
  }
  return largest;
}

// A group's integers to `best`; returns its scale in f16. `tried` is as long.
std::uint16_t quantise_group(const float* x, std::int64_t n, float* tried, float* best) {
  const float largest = largest_of(x, n);
  // Far below what f16 can scale, weights are as good as zero.
  if (std::abs(largest) < 1e-8F) {
    std::fill_n(best, n, 0.0F);
    return 0;
  }
  GroupFit found{.error = std::numeric_limits<float>::infinity()};
  for (const float end : kEnds) {
    round_to(x, n, end / largest, tried);
    const GroupFit now = fit(x, tried, n);
    if (!(now.error < found.error)) continue;
    found = now;
    std::copy_n(tried, n, best);
  }
  return to_f16(found.scale).bits;
}

void check_weights(std::span<const float> weights, std::int64_t output) {
  constexpr float kLargest = 65504.0F * 6;  // below the largest f16, times the smallest end
  const float largest = std::abs(largest_of(weights.data(), std::ssize(weights)));
  if (largest <= kLargest) return;
  throw Error(ErrorCode::kCorruptData,
              std::isfinite(largest)
                  ? fmt::format("output {} has a weight of {}, too large for int4", output, largest)
                  : fmt::format("output {} has a weight that is infinite or no number", output));
}

// Integers of one output, in whole lines, to their words.
void scatter_codes(const float* integers, std::int64_t n, std::uint8_t* to) {
  const auto code = [&](std::int64_t i) {
    return static_cast<unsigned>(static_cast<int>(integers[i]) + kZeroCode);
  };
  for (std::int64_t line = 0; line < n; line += kInt4Line, to += kLineBytes) {
    for (std::int64_t b = 0; b < 4; ++b) {
      to[b] = static_cast<std::uint8_t>(code(line + b) | code(line + 4 + b) << 4);
    }
  }
}

}  // namespace

Int4Matrix::Int4Matrix(const Int8Shape& shape, const Int4Layout& layout)
    : shape_(shape), layout_(layout) {
  require(shape.n_out > 0 && shape.n_in > 0 && shape.group > 0 && shape.group % kInt4Line == 0 &&
              layout.group > 0 && layout.group % kInt4Run == 0,
          fmt::format("int4 weights [{}, {}] in groups of {}, activations in groups of {}",
                      shape.n_out, shape.n_in, layout.group, shape.group));
  const std::int64_t n_lanes = ceil_div(shape.n_out, kInt8Panel) * kInt8Panel;
  codes_ = Tensor<std::uint8_t, 1>({n_lanes * n_groups() * layout.group / 2});
  scales_ = Tensor<std::uint16_t, 1>({n_lanes * n_groups()});
}

void Int4Matrix::quantise_panel(std::int64_t panel, const ReadRow& read_row) {
  const std::int64_t width = n_groups() * layout_.group;
  std::vector<float> weights(static_cast<std::size_t>(width));
  std::vector<float> integers(weights.size());
  std::vector<float> tried(static_cast<std::size_t>(layout_.group));
  std::uint8_t* codes = codes_.data() + panel * kInt8Panel * width / 2;
  std::uint16_t* scales = scales_.data() + panel * kInt8Panel * n_groups();
  for (std::int64_t lane = 0; lane < kInt8Panel; ++lane) {
    const std::int64_t output = panel * kInt8Panel + lane;
    std::fill(weights.begin(), weights.end(), 0.0F);
    if (output < shape_.n_out) {
      read_row(output, weights.data());
      check_weights(weights, output);
    }
    for (std::int64_t g = 0; g < n_groups(); ++g) {
      scales[g * kInt8Panel + lane] =
          quantise_group(weights.data() + g * layout_.group, layout_.group, tried.data(),
                         integers.data() + g * layout_.group);
    }
    scatter_codes(integers.data(), width, codes + lane * (kInt4Line / 2));
  }
}

Int4Matrix Int4Matrix::quantise(const Int8Shape& shape, const ReadRow& read_row,
                                const Int4Layout& layout) {
  Int4Matrix matrix(shape, layout);
  parallel_rows(ceil_div(shape.n_out, kInt8Panel), kInt8Panel * shape.n_in,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t panel = begin; panel < end; ++panel) {
                    matrix.quantise_panel(panel, read_row);
                  }
                });
  return matrix;
}

Int4Matrix Int4Matrix::filled(const Int8Shape& shape, float weight) {
  constexpr std::uint8_t kOne = kZeroCode + 1;
  Int4Matrix matrix(shape, {});
  std::fill_n(matrix.codes_.data(), matrix.codes_.size(), std::uint8_t{kOne << 4 | kOne});
  std::fill_n(matrix.scales_.data(), matrix.scales_.size(), to_f16(weight).bits);
  return matrix;
}

WeightView Int4Matrix::view() const {
  return {.data = codes_.data(),
          .dtype = DType::kI4,
          .n_out = shape_.n_out,
          .n_in = shape_.n_in,
          .row_stride = n_groups() * layout_.group,
          .group = shape_.group,
          .int4 = layout_,
          .group_scales = scales_.data()};
}

std::int64_t Int4Matrix::bytes() const {
  return codes_.size() + scales_.size() * static_cast<std::int64_t>(sizeof(std::uint16_t));
}

float int4_weight(const WeightView& weight, std::int64_t output, std::int64_t input) {
  const std::int64_t lane = weight.first_lane + output;
  const std::int64_t at = weight.first_input + input;
  const std::int64_t panel = lane / kInt8Panel;
  const std::int64_t in_line = at % kInt4Line;
  const auto* word = static_cast<const std::uint8_t*>(weight.data) +
                     panel * kInt8Panel * weight.stride() / 2 + at / kInt4Line * kLineBytes +
                     lane % kInt8Panel * (kInt4Line / 2);
  const unsigned code = word[in_line % 4] >> (in_line < 4 ? 0 : 4) & 15U;
  const std::uint16_t scale =
      weight.group_scales[(panel * (weight.stride() / weight.int4.group) + at / weight.int4.group) *
                              kInt8Panel +
                          lane % kInt8Panel];
  return to_float(Float16{scale}) * static_cast<float>(static_cast<int>(code) - kZeroCode);
}

}  // namespace longhaul
