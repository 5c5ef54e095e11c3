#include "kernels/probes/gpu_probes.h"

#include <algorithm>
#include <functional>

#include "base/dtype.h"
#include "kernels/linear.h"
#include "kernels/probes/gpu_values.h"
#include "kernels/read_all.h"

namespace longhaul {
namespace {

constexpr int kRuns = 5;

double best_seconds(cuda::Stream& stream, const std::function<void()>& work) {
  work();  // first uses load modules and choose algorithms
  cuda::Event begin;
  cuda::Event end;
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    begin.record(stream);
    work();
    end.record(stream);
    stream.finish(end);
    best = std::min(best, end.milliseconds_since(begin) / 1e3);
  }
  return std::max(best, 1e-9);
}

std::size_t weight_bytes(const GpuProbeSizes& s) {
  return static_cast<std::size_t>(s.n_out * s.n_in) * 2;
}
std::size_t x_bytes(const GpuProbeSizes& s) {
  return static_cast<std::size_t>(s.n_tokens * s.n_in) * sizeof(float);
}

}  // namespace

GpuProbes::GpuProbes(cuda::Stream& stream, const GpuProbeSizes& sizes)
    : stream_(stream),
      sizes_(sizes),
      memory_(weight_bytes(sizes) + x_bytes(sizes) +
              static_cast<std::size_t>(sizes.n_tokens * sizes.n_out) * sizeof(float)) {
  fill_random(stream, memory_.data(), DType::kBf16, sizes.n_out * sizes.n_in);
  fill_random(stream, memory_.data() + weight_bytes(sizes), DType::kF32,
              sizes.n_tokens * sizes.n_in);
}

Rates GpuProbes::measure() const {
  auto* x = reinterpret_cast<float*>(memory_.data() + weight_bytes(sizes_));
  const LinearArgs product = {
      .x = {x, {sizes_.n_tokens, sizes_.n_in}},
      .weight = {memory_.data(), DType::kBf16, sizes_.n_out, sizes_.n_in},
      .bias = {},
      .out = {x + sizes_.n_tokens * sizes_.n_in, {sizes_.n_tokens, sizes_.n_out}}};
  const double flops = 2.0 * static_cast<double>(sizes_.n_tokens) *
                       static_cast<double>(sizes_.n_in) * static_cast<double>(sizes_.n_out);
  Rates rates;
  rates.pair_flops = flops / best_seconds(stream_, [&] { linear(stream_.ref(), product); });
  rates.float_flops = rates.pair_flops;
  rates.int8_ops = 2 * rates.pair_flops;
  // The outputs, which are written next time, have room for the read's 4 bytes.
  rates.read_bytes =
      static_cast<double>(memory_.bytes()) / best_seconds(stream_, [&] {
        read_all(stream_.ref(), {.from = memory_.data(),
                                 .n_bytes = memory_.bytes(),
                                 .unused = reinterpret_cast<std::byte*>(product.out.data())});
      });
  return rates;
}

}  // namespace longhaul
