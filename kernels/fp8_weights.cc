#include "kernels/fp8_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/parallel.h"

namespace longhaul {

WeightView fp8_view(const std::uint8_t* codes, std::int64_t n_out, std::int64_t n_in,
                    const float* scales, const Fp8Layout& layout) {
  require(layout.block_out > 0 && layout.block_in > 0 && layout.block_in % kFp8Chunk == 0,
          fmt::format("fp8 weights in blocks of {} x {}: inputs must be a multiple of {}",
                      layout.block_out, layout.block_in, kFp8Chunk));
  return {.data = codes,
          .dtype = DType::kF8E4m3,
          .n_out = n_out,
          .n_in = n_in,
          .row_stride = n_in,
          .fp8 = layout,
          .block_scales = scales,
          .scale_stride = ceil_div(n_in, layout.block_in)};
}

std::optional<std::int64_t> first_nan(std::span<const std::uint8_t> codes) {
  constexpr std::int64_t kPiece = 4096;
  const auto n = static_cast<std::int64_t>(codes.size());
  std::atomic<std::int64_t> first{n};
  parallel_rows(ceil_div(n, kPiece), kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t stop = std::min(n, (piece + 1) * kPiece);
      std::uint8_t has_nan = 0;
      for (std::int64_t i = piece * kPiece; i < stop; ++i) {
        const bool is_nan = (codes[static_cast<std::size_t>(i)] & 0x7f) == 0x7f;
        has_nan = static_cast<std::uint8_t>(has_nan | (is_nan ? 1 : 0));
      }
      if (has_nan == 0) continue;
      std::int64_t i = piece * kPiece;
      while ((codes[static_cast<std::size_t>(i)] & 0x7f) != 0x7f) ++i;
      std::int64_t known = first.load();
      while (i < known && !first.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  if (first.load() == n) return std::nullopt;
  return first.load();
}

Fp8Matrix::Fp8Matrix(std::int64_t n_out, std::int64_t n_in, const Fp8Layout& layout)
    : n_out_(n_out), n_in_(n_in), layout_(layout) {
  require(n_out > 0 && n_in > 0, fmt::format("fp8 weights [{}, {}]", n_out, n_in));
  codes_ = Tensor<std::uint8_t, 1>({n_out * n_in});
  scales_ = Tensor<float, 2>({ceil_div(n_out, layout.block_out), ceil_div(n_in, layout.block_in)});
}

void Fp8Matrix::quantise_block(std::int64_t block, const ReadRow& read_row,
                               std::vector<float>& weights) {
  const std::int64_t first = block * layout_.block_out;
  const std::int64_t n_rows = std::min(layout_.block_out, n_out_ - first);
  weights.resize(static_cast<std::size_t>(n_rows * n_in_));
  std::vector<float> largest(static_cast<std::size_t>(scales_.dim(1)), 0.0F);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    float* w = weights.data() + row * n_in_;
    read_row(first + row, w);
    for (std::int64_t i = 0; i < n_in_; ++i) {
      if (!std::isfinite(w[i])) {
        throw Error(
            ErrorCode::kCorruptData,
            fmt::format("output {} has a weight that is infinite or no number", first + row));
      }
      float& most = largest[static_cast<std::size_t>(i / layout_.block_in)];
      most = std::max(most, std::fabs(w[i]));
    }
  }
  float* scales = scales_.data() + block * scales_.dim(1);
  for (std::size_t b = 0; b < largest.size(); ++b) {
    // So small, weights are as good as zero, and a scale would be a denormal.
    scales[b] = largest[b] < 1e-35F ? 0.0F : largest[b] / kLargestE4m3;
  }
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const float* w = weights.data() + row * n_in_;
    std::uint8_t* codes = codes_.data() + (first + row) * n_in_;
    for (std::int64_t i = 0; i < n_in_; ++i) {
      const float scale = scales[i / layout_.block_in];
      codes[i] = scale == 0 ? std::uint8_t{0} : to_e4m3(w[i] / scale).bits;
    }
  }
}

Fp8Matrix Fp8Matrix::quantise(std::int64_t n_out, std::int64_t n_in, const ReadRow& read_row,
                              const Fp8Layout& layout) {
  Fp8Matrix matrix(n_out, n_in, layout);
  parallel_rows(matrix.scales_.dim(0), layout.block_out * n_in,
                [&](std::int64_t begin, std::int64_t end) {
                  std::vector<float> weights;
                  for (std::int64_t block = begin; block < end; ++block)
                    matrix.quantise_block(block, read_row, weights);
                });
  return matrix;
}

WeightView Fp8Matrix::view() const {
  return fp8_view(codes_.data(), n_out_, n_in_, scales_.data(), layout_);
}

void round_fp8_inputs(std::int64_t first, std::span<float> x) {
  const auto n = static_cast<std::int64_t>(x.size());
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t end = std::min(n, begin + kFp8InputGroup - (first + begin) % kFp8InputGroup);
    const std::span<float> group =
        x.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    float largest = 0.0F;
    bool finite = true;
    for (const float value : group) {
      largest = std::max(largest, std::fabs(value));
      finite = finite && std::isfinite(value);
    }
    const float scale = largest / kLargestE4m3;
    for (float& value : group) {
      if (!finite)
        value = std::numeric_limits<float>::quiet_NaN();
      else if (scale != 0.0F)
        value = to_float(to_e4m3(value / scale)) * scale;
      else
        value = 0.0F;
    }
    begin = end;
  }
}

float fp8_weight(const WeightView& weight, std::int64_t output, std::int64_t input) {
  const auto* codes = static_cast<const std::uint8_t*>(weight.data);
  const std::int64_t row = (weight.first_lane + output) / weight.fp8.block_out;
  const std::int64_t column = (weight.first_input + input) / weight.fp8.block_in;
  return to_float(Float8E4m3{codes[output * weight.stride() + input]}) *
         weight.block_scales[row * weight.scale_stride + column];
}

}  // namespace longhaul
