// GPU memory as operators in benchmarks take it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/device/device_cuda.h"
#include "base/dtype.h"
#include "kernels/probes/gpu_values.h"

namespace longhaul::bench {

// n values of type kF32 or kBf16 (fill_random).
inline cuda::Buffer random_buffer(cuda::Stream& stream, DType dtype, std::int64_t n) {
  cuda::Buffer out(static_cast<std::size_t>(n) * size_of(dtype));
  fill_random(stream, out.data(), dtype, n);
  return out;
}

inline float* floats(const cuda::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

}  // namespace longhaul::bench
