// The unit of cache memory: `block_size` consecutive tokens' K and V of one (layer, KV head), K
// first, then V.
//
// The layout is chosen for the dot-product instructions, so that attention never transposes. With
// lanes = 1 for f32 and lanes = 2 for bf16 (VDPBF16PS multiplies pairs):
//   K  [head_dim / lanes, block_size, lanes]    scores of many keys at once: one query pair is
//   broadcast over the keys V  [block_size / lanes, head_dim, lanes]    outputs of many dims at
//   once: one weight pair is broadcast over the dims
// Example, bf16, block_size 4, head_dim 4, k[token][dim]:  k00 k01 k10 k11 k20 k21 k30 k31 | k02
// k03 k12 k13 ... Slots that hold no token yet must be zero (not garbage: 0 * NaN is NaN), so a
// block is zero-filled when it is taken.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace longhaul {

struct KvBlockShape {
  std::int64_t block_size = 64;  // tokens; a multiple of 16, for whole vectors of keys
  std::int64_t head_dim = 0;     // even
  DType k_dtype = DType::kF32;   // kF32 or kBf16; K and V may differ
  DType v_dtype = DType::kF32;

  std::size_t k_bytes() const {
    return static_cast<std::size_t>(block_size * head_dim) * size_of(k_dtype);
  }
  std::size_t v_bytes() const {
    return static_cast<std::size_t>(block_size * head_dim) * size_of(v_dtype);
  }
  std::size_t bytes() const { return k_bytes() + v_bytes(); }
  bool operator==(const KvBlockShape&) const = default;
};

// A block as attention reads it: the tokens in its slots [0, n_tokens) have positions
// first_position, first_position + 1, ...
struct KvBlockRef {
  const std::byte* data = nullptr;
  std::int64_t first_position = 0;
  std::int64_t n_tokens = 0;
};

}  // namespace longhaul
