// The words of cache blocks (kernels/kv_block.h) as kernels read and write them: where values are,
// and how codes lie in a word. Blocks have the same layout on CPUs and GPUs, byte for byte, so they
// travel and are saved as they are. It suits tensor cores too: a word of bf16 is one register of
// the right side of mma m16n8k16, for K (dims 2t and 2t + 1 of a key) as for V (keys 2t and 2t + 1
// of a dim).
#pragma once
#include <cstdint>

#include "kernels/kv_block.h"

#if defined(__CUDACC__)
#define LONGHAUL_HOST_DEVICE __host__ __device__
#else
#define LONGHAUL_HOST_DEVICE
#endif

namespace longhaul::cuda {

// base/kv_type.h's kv_lanes, for kernels.
LONGHAUL_HOST_DEVICE constexpr int lanes_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 1;
    case KvType::kBf16:
      return 2;
    case KvType::kInt8:
    case KvType::kFp8:
      return 4;
    case KvType::kInt4:
    case KvType::kKivi4:
      return 8;
    case KvType::kKivi2:
      return 16;
  }
  return 1;
}
// Codes with a scale, and a minimum if there is one, for each token.
LONGHAUL_HOST_DEVICE constexpr bool holds_codes(KvType type) {
  return type == KvType::kInt8 || type == KvType::kInt4 || type == KvType::kFp8;
}
LONGHAUL_HOST_DEVICE constexpr bool has_minimum(KvType type) { return type != KvType::kFp8; }
// Codes with a scale and a minimum for each group of kKvGroup of them.
LONGHAUL_HOST_DEVICE constexpr bool holds_groups(KvType type) {
  return type == KvType::kKivi4 || type == KvType::kKivi2;
}
// Of codes that are integers.
LONGHAUL_HOST_DEVICE constexpr int most_code(KvType type) {
  return type == KvType::kInt8 ? 255 : type == KvType::kKivi2 ? 3 : 15;
}

// Bits of value i of a word of `lanes` values. Of 8, bytes 0 to 3 hold values 0 to 3 in their lower
// halves and 4 to 7 in their upper ones; of 16 likewise, in quarters.
LONGHAUL_HOST_DEVICE constexpr int lane_shift(int lanes, int i) {
  return lanes >= 4 ? i % 4 * 8 + i / 4 * (32 / lanes) : i * (32 / lanes);
}
LONGHAUL_HOST_DEVICE constexpr std::uint32_t lane_mask(int lanes) {
  return 0xffffffffU >> static_cast<unsigned>(32 - 32 / lanes);
}
LONGHAUL_HOST_DEVICE constexpr std::uint32_t lane_bits(int lanes, std::uint32_t word, int i) {
  return word >> static_cast<unsigned>(lane_shift(lanes, i)) & lane_mask(lanes);
}

// Of K or V of one block.
struct PartRef {
  KvType type;
  std::int64_t at;         // bytes from the block's start to the words
  std::int64_t scales_at;  // to the scales; not for f32 and bf16
  std::int64_t minima_at;  // not for fp8
  bool operator==(const PartRef&) const = default;
};

inline PartRef k_part(const KvBlockShape& shape) {
  const KvPartLayout layout = shape.part(shape.k_type);
  return {shape.k_type, 0, static_cast<std::int64_t>(layout.scales_at()),
          static_cast<std::int64_t>(layout.minima_at())};
}
inline PartRef v_part(const KvBlockShape& shape) {
  const KvPartLayout layout = shape.part(shape.v_type);
  const auto at = static_cast<std::int64_t>(shape.k_bytes());
  return {shape.v_type, at, at + static_cast<std::int64_t>(layout.scales_at()),
          at + static_cast<std::int64_t>(layout.minima_at())};
}

}  // namespace longhaul::cuda
