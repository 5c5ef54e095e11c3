#include "kernels/cuda/upload_weight.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"

namespace longhaul {

namespace {

// Codes, then scales with the stride of fp8_scale_stride.
UploadedWeight upload_fp8(cuda::Stream& stream, const WeightView& host) {
  require(host.first_lane == 0 && host.first_input == 0, "upload_weight: a part of fp8 weights");
  const std::int64_t n_codes = (host.n_out - 1) * host.stride() + host.n_in;
  const auto scales_at = static_cast<std::size_t>(ceil_div(n_codes, 16) * 16);
  const std::int64_t n_rows = ceil_div(host.n_out, host.fp8.block_out);
  const std::int64_t n_columns = ceil_div(host.n_in, host.fp8.block_in);
  const std::int64_t stride = fp8_scale_stride(host.n_in, host.fp8);
  std::vector<float> scales(static_cast<std::size_t>(n_rows * stride));
  for (std::int64_t row = 0; row < n_rows; ++row)
    std::copy_n(host.block_scales + row * host.scale_stride, n_columns,
                scales.begin() + row * stride);
  UploadedWeight out = {cuda::Buffer(scales_at + scales.size() * sizeof(float)), host};
  cuda::copy_to_device(
      stream, out.memory.data(),
      {static_cast<const std::byte*>(host.data), static_cast<std::size_t>(n_codes)});
  cuda::copy_to_device(stream, out.memory.data() + scales_at, std::as_bytes(std::span(scales)));
  out.view.data = out.memory.data();
  out.view.block_scales = reinterpret_cast<const float*>(out.memory.data() + scales_at);
  out.view.scale_stride = stride;
  return out;
}

// Whole panels, then what scales them.
UploadedWeight upload_panels(cuda::Stream& stream, const WeightView& host,
                             std::span<const std::byte> panels, std::span<const std::byte> scales) {
  // Panels are a multiple of 64 bytes, so scales behind them are aligned.
  UploadedWeight out = {cuda::Buffer(panels.size() + scales.size()), host};
  cuda::copy_to_device(stream, out.memory.data(), panels);
  cuda::copy_to_device(stream, out.memory.data() + panels.size(), scales);
  out.view.data = out.memory.data();
  return out;
}

std::int64_t n_lanes_of(const WeightView& host) {
  return ceil_div(host.first_lane + host.n_out, kInt8Panel) * kInt8Panel;
}

UploadedWeight upload_int8(cuda::Stream& stream, const WeightView& host) {
  require(host.stride() % kInt8Step == 0 && host.n_in > host.stride() - kInt8Step,
          "upload_weight: a part of the inputs of int8 weights");
  const std::int64_t n_lanes = n_lanes_of(host);
  const auto n_bytes = static_cast<std::size_t>(n_lanes * host.stride());
  UploadedWeight out =
      upload_panels(stream, host, {static_cast<const std::byte*>(host.data), n_bytes},
                    std::as_bytes(std::span(host.scales, static_cast<std::size_t>(n_lanes))));
  out.view.scales = reinterpret_cast<const float*>(out.memory.data() + n_bytes);
  return out;
}

UploadedWeight upload_int4(cuda::Stream& stream, const WeightView& host) {
  require(host.stride() % host.int4.group == 0 &&
              host.first_input + host.n_in > host.stride() - host.int4.group,
          "upload_weight: a part of the inputs of int4 weights");
  const std::int64_t n_lanes = n_lanes_of(host);
  const auto n_bytes = static_cast<std::size_t>(n_lanes * host.stride() / 2);
  const auto n_scales = static_cast<std::size_t>(n_lanes * (host.stride() / host.int4.group));
  UploadedWeight out =
      upload_panels(stream, host, {static_cast<const std::byte*>(host.data), n_bytes},
                    std::as_bytes(std::span(host.group_scales, n_scales)));
  out.view.group_scales = reinterpret_cast<const std::uint16_t*>(out.memory.data() + n_bytes);
  return out;
}

}  // namespace

UploadedWeight upload_weight(cuda::Stream& stream, const WeightView& host) {
  if (host.dtype == DType::kI8) return upload_int8(stream, host);
  if (host.dtype == DType::kI4) return upload_int4(stream, host);
  if (host.dtype == DType::kF8E4m3 && host.n_out > 0) return upload_fp8(stream, host);
  const std::int64_t n = host.n_out == 0 ? 0 : (host.n_out - 1) * host.stride() + host.n_in;
  const std::size_t bytes = static_cast<std::size_t>(n) * size_of(host.dtype);
  UploadedWeight out = {cuda::Buffer(bytes), host};
  cuda::copy_to_device(stream, out.memory.data(),
                       {static_cast<const std::byte*>(host.data), bytes});
  out.view.data = out.memory.data();
  return out;
}

UploadedWeights upload_weights(cuda::Stream& stream, std::span<const WeightView> host) {
  const auto bytes_of = [](const WeightView& w) {
    return static_cast<std::size_t>(w.n_out * w.n_in) * size_of(w.dtype);
  };
  std::size_t n_bytes = 0;
  for (const WeightView& weight : host) {
    require((weight.dtype == DType::kF32 || weight.dtype == DType::kBf16) &&
                weight.dtype == host.front().dtype && weight.n_in == host.front().n_in &&
                weight.stride() == weight.n_in,
            "upload_weights: only whole matrices of floats of one type and width");
    n_bytes += bytes_of(weight);
  }
  UploadedWeights out = {cuda::Buffer(n_bytes), {}};
  std::byte* to = out.memory.data();
  for (const WeightView& weight : host) {
    cuda::copy_to_device(stream, to,
                         {static_cast<const std::byte*>(weight.data), bytes_of(weight)});
    out.views.push_back(weight);
    out.views.back().data = to;
    to += bytes_of(weight);
  }
  return out;
}

}  // namespace longhaul
