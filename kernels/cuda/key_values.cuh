// Cached values as floats, of any type and as attention reads them: kernels/read_keys.h on the GPU,
// a value at a time. Each value is rounded as CPUs round it.
#pragma once
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_words.cuh"

namespace longhaul::cuda {

// The keys of a block, or the values.
struct KeyPart {
  PartRef part;
  std::int64_t block_size;
  std::int64_t head_dim;
  bool operator==(const KeyPart&) const = default;
};
inline KeyPart key_part(const KvBlockShape& shape) {
  return {k_part(shape), shape.block_size, shape.head_dim};
}
inline KeyPart value_part(const KvBlockShape& shape) {
  return {v_part(shape), shape.block_size, shape.head_dim};
}

// Value `lane` of a word, of the token in `slot`.
__device__ __forceinline__ float value_of(const PartRef& part, const std::byte* block,
                                          std::uint32_t word, int lane, std::int64_t slot) {
  if (part.type == KvType::kF32) return __uint_as_float(word);
  const int lanes = lanes_of(part.type);
  const std::uint32_t bits = lane_bits(lanes, word, lane);
  if (part.type == KvType::kBf16) return __uint_as_float(bits << 16U);
  const float scale =
      float_of_f16(reinterpret_cast<const std::uint16_t*>(block + part.scales_at)[slot]);
  const float minimum =
      has_minimum(part.type)
          ? float_of_f16(reinterpret_cast<const std::uint16_t*>(block + part.minima_at)[slot])
          : 0.0F;
  return value_of_code(part.type, bits, scale, minimum);
}

// Dimension d of the key in this slot.
__device__ __forceinline__ float key_value(const KeyPart& k, const std::byte* block, std::int64_t d,
                                           std::int64_t slot) {
  const int lanes = lanes_of(k.part.type);
  const auto* words = reinterpret_cast<const std::uint32_t*>(block + k.part.at);
  return value_of(k.part, block, words[d / lanes * k.block_size + slot],
                  static_cast<int>(d % lanes), slot);
}

// Dimension d of the value in this slot.
__device__ __forceinline__ float cached_value(const KeyPart& v, const std::byte* block,
                                              std::int64_t d, std::int64_t slot) {
  const int lanes = lanes_of(v.part.type);
  const auto* words = reinterpret_cast<const std::uint32_t*>(block + v.part.at);
  return value_of(v.part, block, words[slot / lanes * v.head_dim + d],
                  static_cast<int>(slot % lanes), slot);
}

}  // namespace longhaul::cuda
