// The unit of cache memory: `block_size` consecutive tokens' K and V of one (layer, KV head), K
// first, then V.
//
// The layout is chosen for the dot-product instructions, so that attention never transposes: words
// of 32 bits that hold `lanes` values along the sum of a product, kv_lanes of base/kv_type.h: 1 for
// f32, 2 for bf16 (VDPBF16PS multiplies pairs), 4 for int8 and fp8, 8 for int4 and kivi4, 16 for
// kivi2.
//   K  [head_dim / lanes, block_size] words: scores of many keys at once; a word holds
//      neighbouring dims of one token
//   V  [block_size / lanes, head_dim] words: outputs of many dims at once; a word holds one dim of
//      neighbouring tokens
// Example, bf16, block_size 4, head_dim 4, k[token][dim]:
//   k00 k01 k10 k11 k20 k21 k30 k31 | k02 k03 k12 k13 ...
// The first value is in a word's lowest bits; of 4 bits, bytes 0 to 3 hold values 0 to 3 in their
// lower halves and values 4 to 7 in their upper ones; of 2 bits likewise values 0 to 3, 4 to 7, 8
// to 11 and 12 to 15.
//
// Quantised K and V end with scales, then minima (fp8 has none), f16 each: of int8, fp8 and int4
// [block_size]; of kivi4 and kivi2 [block_size / kKvGroup, head_dim] for K and [head_dim /
// kKvGroup, block_size] for V.
//
// Slots that hold no token yet must be zero (not garbage: 0 * NaN is NaN): kv_append clears them in
// a new block, and a block that is filled otherwise is zero when it is taken.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/kv_type.h"

namespace longhaul {

// Where the parts of K or V of one block lie, in bytes.
struct KvPartLayout {
  std::size_t code_bytes = 0;  // of the words; then the scales, then the minima
  std::size_t bytes = 0;
  bool has_minima = false;
  std::size_t scales_at() const { return code_bytes; }
  std::size_t minima_at() const { return has_minima ? (code_bytes + bytes) / 2 : bytes; }
};

struct KvBlockShape {
  std::int64_t block_size = 64;  // tokens; a multiple of 16, for whole vectors of keys
  std::int64_t head_dim = 0;     // even, and a multiple of the types' lanes
  KvType k_type = KvType::kF32;  // K and V may differ
  KvType v_type = KvType::kF32;

  KvPartLayout part(KvType type) const {
    const std::int64_t words = block_size * head_dim / kv_lanes(type);
    return {static_cast<std::size_t>(4 * words),
            static_cast<std::size_t>(block_size * kv_token_bytes(type, head_dim)),
            longhaul::has_minima(type)};
  }
  std::size_t k_bytes() const { return part(k_type).bytes; }
  std::size_t v_bytes() const { return part(v_type).bytes; }
  std::size_t bytes() const { return k_bytes() + v_bytes(); }
  // Whether tokens must be written a group (kKvGroup) at a time.
  bool quantises_groups() const {
    return longhaul::quantises_groups(k_type) || longhaul::quantises_groups(v_type);
  }
  bool operator==(const KvBlockShape&) const = default;
};

// Of a slot, for each query head of the KV head's group whether it sees the slot: bit g is that of
// the group's head g.
using SeenBy = std::uint64_t;
inline constexpr SeenBy kSeenByAll = ~SeenBy{0};
inline constexpr std::int64_t kMostSeenByHeads = 64;

// A block as attention reads it: the tokens in its slots [0, n_tokens) have positions
// first_position, first_position + 1, ...
struct KvBlockRef {
  const std::byte* data = nullptr;
  std::int64_t first_position = 0;
  std::int64_t n_tokens = 0;
  const SeenBy* seen_by = nullptr;  // [n_tokens], memory of the block's device; null: all heads see
                                    // all slots
};

}  // namespace longhaul
