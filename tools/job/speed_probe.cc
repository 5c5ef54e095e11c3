#include "tools/job/speed_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/device/device_cuda.h"
#include "kernels/fp8_weights.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "kernels/linear.h"
#include "kernels/tensor.h"
#include "partition/weight_bytes.h"

namespace longhaul {
namespace {

// Repeats `work` for about a tenth of a second and returns the shortest time of one.
template <typename Work>
double shortest_seconds(const Work& work) {
  constexpr double kBudget = 0.1;
  work();  // threads start, pages are touched
  const Stopwatch all;
  double shortest = 1e30;
  do {
    const Stopwatch one;
    work();
    shortest = std::min(shortest, one.seconds());
  } while (all.seconds() < kBudget);
  return std::max(shortest, 1e-9);
}

// A product with `n_rows` rows of `weight`, in seconds.
double seconds_of_product(const WeightView& weight, std::int64_t n_rows) {
  const Tensor<float, 2> x({n_rows, weight.n_in});
  Tensor<float, 2> out({n_rows, weight.n_out});
  const LinearArgs args{.x = x.view(), .weight = weight, .bias = {}, .out = out.view()};
  return shortest_seconds([&] { linear(StreamRef::cpu(), args); });
}

// The same with weights of this type.
double seconds_of_product(DType dtype, std::int64_t n_rows, std::int64_t n_out, std::int64_t n_in) {
  const auto ones = [&](std::int64_t, float* row) { std::fill_n(row, n_in, 1.0F); };
  if (dtype == DType::kI8)
    return seconds_of_product(Int8Matrix::quantise({n_out, n_in}, ones).view(), n_rows);
  if (dtype == DType::kI4)
    return seconds_of_product(Int4Matrix::filled({n_out, n_in}, 1.0F).view(), n_rows);
  if (dtype == DType::kF8E4m3) {
    const std::vector<std::uint8_t> codes(static_cast<std::size_t>(n_out * n_in), to_e4m3(1).bits);
    const std::vector<float> scales(codes.size() / 64, 1.0F);  // more than there are blocks
    return seconds_of_product(fp8_view(codes.data(), n_out, n_in, scales.data()), n_rows);
  }
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const Tensor<std::byte, 1> floats({n_out * n_in * element});
  return seconds_of_product(WeightView{floats.data(), dtype, n_out, n_in}, n_rows);
}

// The same on the stream's GPU. Weights of integers and fp8 are measured as bf16.
double seconds_of_product(cuda::Stream& stream, DType dtype, std::int64_t n_rows,
                          std::int64_t n_out, std::int64_t n_in) {
  dtype = table_type(dtype);
  const auto bytes = [](std::int64_t n, std::size_t each) {
    return static_cast<std::size_t>(n) * each;
  };
  const cuda::Buffer weight(bytes(n_out * n_in, size_of(dtype)));
  const cuda::Buffer x(bytes(n_rows * n_in, sizeof(float)));
  const cuda::Buffer out(bytes(n_rows * n_out, sizeof(float)));
  cuda::fill_with_zeros(stream, weight.data(), weight.bytes());
  cuda::fill_with_zeros(stream, x.data(), x.bytes());
  const LinearArgs args{.x = {reinterpret_cast<float*>(x.data()), {n_rows, n_in}},
                        .weight = WeightView{weight.data(), dtype, n_out, n_in},
                        .bias = {},
                        .out = {reinterpret_cast<float*>(out.data()), {n_rows, n_out}}};
  return shortest_seconds([&] {
    linear(stream.ref(), args);
    stream.synchronise();
  });
}

MeasuredSpeed measure_gpu(DType weight_dtype, int gpu) {
  cuda::Stream stream(gpu);
  constexpr std::int64_t kRows = 2048, kSide = 4096;
  const double product = seconds_of_product(stream, weight_dtype, kRows, kSide, kSide);
  MeasuredSpeed speed;
  speed.gflops = 2.0 * kRows * kSide * kSide / product / 1e9;
  constexpr std::int64_t kOut = 32'768;  // with kSide inputs several times a cache
  const double reading = seconds_of_product(stream, weight_dtype, 1, kOut, kSide);
  const double element = weight_dtype == DType::kF32 ? 4.0 : 2.0;
  speed.memory_gb_per_s = element * kOut * kSide / reading / 1e9;
  return speed;
}

}  // namespace

MeasuredSpeed measure_speed(DType weight_dtype, int gpu) {
  if (gpu >= 0) return measure_gpu(weight_dtype, gpu);
  // Many rows on a matrix that caches hold: arithmetic. One row on one that they do not: memory.
  constexpr std::int64_t kRows = 128, kSide = 1024;
  const double product = seconds_of_product(weight_dtype, kRows, kSide, kSide);
  MeasuredSpeed speed;
  speed.gflops = 2.0 * kRows * kSide * kSide / product / 1e9;
  constexpr double kReadBytes = std::size_t{64} << 20;
  const double row_bytes = 4096 * bytes_of_weight(weight_dtype);
  const double reading =
      seconds_of_product(weight_dtype, 1, static_cast<std::int64_t>(kReadBytes / row_bytes), 4096);
  speed.memory_gb_per_s = kReadBytes / reading / 1e9;
  return speed;
}

}  // namespace longhaul
