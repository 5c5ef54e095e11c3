#include "kernels/cuda/upload_weight.h"

#include "base/error.h"

namespace longhaul {

UploadedWeight upload_weight(cuda::Stream& stream, const WeightView& host) {
  const auto* data = static_cast<const std::byte*>(host.data);
  UploadedWeight out = {{}, host};
  require(host.dtype != DType::kI4 && host.dtype != DType::kF8E4m3,
          "upload_weight: GPUs have no products with int4 or fp8 weights");
  if (host.dtype != DType::kI8) {
    const std::int64_t n = host.n_out == 0 ? 0 : (host.n_out - 1) * host.stride() + host.n_in;
    const std::size_t bytes = static_cast<std::size_t>(n) * size_of(host.dtype);
    out.memory = cuda::Buffer(bytes);
    cuda::copy_to_device(stream, out.memory.data(), {data, bytes});
    out.view.data = out.memory.data();
    return out;
  }
  require(host.stride() % kInt8Step == 0 && host.n_in > host.stride() - kInt8Step,
          "upload_weight: a part of the inputs of int8 weights");
  const std::int64_t n_lanes = ceil_div(host.first_lane + host.n_out, kInt8Panel) * kInt8Panel;
  const auto weight_bytes = static_cast<std::size_t>(n_lanes * host.stride());
  const std::size_t scale_bytes = static_cast<std::size_t>(n_lanes) * sizeof(float);
  // Panels are a multiple of 64 bytes, so scales behind them are aligned.
  out.memory = cuda::Buffer(weight_bytes + scale_bytes);
  std::byte* scales = out.memory.data() + weight_bytes;
  cuda::copy_to_device(stream, out.memory.data(), {data, weight_bytes});
  cuda::copy_to_device(stream, scales,
                       {reinterpret_cast<const std::byte*>(host.scales), scale_bytes});
  out.view.data = out.memory.data();
  out.view.scales = reinterpret_cast<const float*>(scales);
  return out;
}

}  // namespace longhaul
