#include "worker/weight_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/upload_weight.h"

namespace longhaul {
namespace {

bool can_join(std::span<const WeightView> weights) {
  const DType first = weights.front().dtype;
  return std::ranges::all_of(weights, [&](const WeightView& weight) {
    return weight.dtype == first && (first == DType::kF32 || first == DType::kBf16);
  });
}

std::int64_t bytes_of(std::span<const WeightView> weights) {
  std::int64_t sum = 0;
  for (const WeightView& weight : weights) sum += weight.bytes();
  return sum;
}

}  // namespace

WeightView WeightMemory::hold(DType dtype, const Int8Shape& shape,
                              const Int8Matrix::ReadRow& read_row) {
  const std::int64_t n_out = shape.n_out;
  const std::int64_t n_in = shape.n_in;
  if (dtype == DType::kI8) return int8s.emplace_back(Int8Matrix::quantise(shape, read_row)).view();
  if (dtype == DType::kI4) {
    return int4s_.emplace_back(Int4Matrix::quantise(shape, read_row)).view();
  }
  if (dtype == DType::kF8E4m3) {
    return fp8s_.emplace_back(Fp8Matrix::quantise(n_out, n_in, read_row)).view();
  }
  if (dtype == DType::kF32) {
    Tensor<float, 2>& out = floats_.emplace_back(Tensor<float, 2>({n_out, n_in}));
    for (std::int64_t o = 0; o < n_out; ++o) read_row(o, out.data() + o * n_in);
    return {.data = out.data(), .dtype = dtype, .n_out = n_out, .n_in = n_in};
  }
  require(
      dtype == DType::kBf16,
      fmt::format("weights in memory are f32, bf16, int8, int4 or fp8, not {}", name_of(dtype)));
  Tensor<BFloat16, 2>& out = bf16s_.emplace_back(Tensor<BFloat16, 2>({n_out, n_in}));
  std::vector<float> row(static_cast<std::size_t>(n_in));
  for (std::int64_t o = 0; o < n_out; ++o) {
    read_row(o, row.data());
    for (std::int64_t i = 0; i < n_in; ++i) {
      out.data()[o * n_in + i] = to_bf16(row[static_cast<std::size_t>(i)]);
    }
  }
  return {.data = out.data(), .dtype = dtype, .n_out = n_out, .n_in = n_in};
}

const std::byte* WeightMemory::copy(std::span<const std::byte> bytes) {
  const HostMemory& there = copies_.emplace_back(bytes.size());
  std::memcpy(there.data(), bytes.data(), bytes.size());
  return there.data();
}

WeightView WeightMemory::place(StreamRef stream, const WeightView& weight) {
  return place(stream, std::vector<WeightView>{weight}).front();
}

std::vector<WeightView> WeightMemory::place(StreamRef stream, std::vector<WeightView> weights) {
  if (stream.device() == Device::kCpu) return weights;
  if (can_join(weights)) {
    const auto upload = [&] {
      UploadedWeights there = upload_weights(stream.cuda_stream(), weights);
      weights = there.views;
      return std::move(there.memory);
    };
    keep(upload, bytes_of(weights));
  } else {
    for (WeightView& weight : weights) {
      const auto upload = [&] {
        UploadedWeight there = upload_weight(stream.cuda_stream(), weight);
        weight = there.view;
        return std::move(there.memory);
      };
      keep(upload, bytes_of({&weight, 1}));
    }
  }
  floats_.clear();
  bf16s_.clear();
  int8s.clear();
  int4s_.clear();
  fp8s_.clear();
  fp8_files.clear();
  return weights;
}

std::span<const float> WeightMemory::place(StreamRef stream, std::vector<float> values) {
  if (values.empty()) return {};
  if (stream.device() == Device::kCpu) return vectors_.emplace_back(std::move(values));
  const auto upload = [&] {
    cuda::Buffer there(values.size() * sizeof(float));
    copy_from_host(stream, there.data(), std::as_bytes(std::span(values)));
    return there;
  };
  keep(upload, static_cast<std::int64_t>(values.size() * sizeof(float)));
  return {reinterpret_cast<const float*>(on_gpu_.back().data()), values.size()};
}

template <typename Upload>
void WeightMemory::keep(const Upload& upload, std::int64_t n_bytes) {
  try {
    on_gpu_.push_back(upload());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    std::size_t n_there = 0;
    for (const cuda::Buffer& buffer : on_gpu_) n_there += buffer.bytes();
    throw Error(error.code(),
                fmt::format("the weights do not fit the GPU: {} bytes of them are there, the next "
                            "tensor has {}; {}. Use more ranks with a GPU each (more stages), or "
                            "fewer bits",
                            n_there, n_bytes, error.what()));
  }
}

}  // namespace longhaul
