// Codes as caches hold them: kernels/kv_quantise.cc on the GPU, to the bit.
#pragma once
#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {

// Of one token's K or V of one head, or of a group of values: value = code * scale + minimum, both
// f16. The minimum is 0 where a type has none.
struct CodeRange {
  std::uint16_t scale;
  std::uint16_t minimum;
  bool is_finite;  // of values that are not all finite there are no codes, and both are NaN
};

constexpr std::uint16_t kNanRange = 0x7e00;

// Of int8 and int4: the minimum is rounded down and the scale up to f16. Of fp8: a power of two.
__device__ __forceinline__ CodeRange token_range(KvType type, float smallest, float largest) {
  if (type == KvType::kFp8) return {e4m3_scale(-smallest > largest ? -smallest : largest), 0, true};
  const auto down = [](float value) -> std::uint16_t {
    if (value >= 65504.0F) return 0x7bff;
    if (value <= -65504.0F) return 0xfbff;
    return f16_rounded_down(value);
  };
  const std::uint16_t minimum = down(smallest);
  const float step = (largest - float_of_f16(minimum)) / static_cast<float>(most_code(type));
  return {static_cast<std::uint16_t>(down(-step) ^ 0x8000U), minimum, true};
}

// Of kivi4 and kivi2: both are rounded to the nearest f16 that is finite.
__device__ __forceinline__ CodeRange group_range(KvType type, float smallest, float largest) {
  const auto nearest = [](float value) {
    return f16_rounded(value > 65504.0F ? 65504.0F : value < -65504.0F ? -65504.0F : value);
  };
  return {nearest((largest - smallest) / static_cast<float>(most_code(type))), nearest(smallest),
          true};
}

// Of x [head_dim], by one warp.
__device__ __forceinline__ CodeRange range_of(KvType type, const float* x, std::int64_t head_dim) {
  float smallest = x[0];
  float largest = x[0];
  bool finite = true;
  for (auto d = static_cast<std::int64_t>(threadIdx.x % kWarp); d < head_dim; d += kWarp) {
    smallest = x[d] < smallest ? x[d] : smallest;
    largest = x[d] > largest ? x[d] : largest;
    finite = finite && x[d] - x[d] == 0.0F;
  }
  smallest = reduce_warp(smallest, Smaller());
  largest = reduce_warp(largest, Larger());
  finite = reduce_warp(finite ? 1 : 0, Smaller()) == 1;
  if (!finite) return {kNanRange, kNanRange, false};
  return token_range(type, smallest, largest);
}

__device__ __forceinline__ std::uint32_t code_of(KvType type, float x, const CodeRange& range) {
  const float scale = float_of_f16(range.scale);
  if (!range.is_finite || scale == 0.0F) return 0;
  if (type == KvType::kFp8) {
    const float scaled = x / scale;  // exact
    return e4m3_of_float(scaled < -448.0F ? -448.0F : scaled > 448.0F ? 448.0F : scaled);
  }
  const float most = static_cast<float>(most_code(type));
  const float code = rintf((x - float_of_f16(range.minimum)) / scale);
  return static_cast<std::uint32_t>(code < 0.0F ? 0.0F : code > most ? most : code);
}

// What it is worth with its scale and minimum, rounded as CPUs round it.
__device__ __forceinline__ float value_of_code(KvType type, std::uint32_t code, float scale,
                                               float minimum) {
  if (type == KvType::kFp8) return rounded_product(float_of_e4m3(code), scale);
  return rounded_sum(rounded_product(static_cast<float>(code), scale), minimum);
}

}  // namespace longhaul::cuda
