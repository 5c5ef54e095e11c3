// One tile of queries against a list of blocks, on one thread. See kernels/cpu/isa/kernels.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/kv_block.h"

namespace longhaul::cpu {

// The most rows, n_tokens * n_heads, of a tile.
inline constexpr std::int64_t kAttentionTileRows = 192;

// AMX takes whole units of head dims, and of a block's slots.
inline constexpr std::int64_t kAmxUnit = 32;
// Whether numbers are integers with a scale and a minimum, which products take as they are. Not a
// shared function: every instruction set has its own.
static inline bool holds_codes(KvType type) {
  return type == KvType::kInt8 || type == KvType::kInt4;
}

// Rows that amx_attend_few takes at most: two of them fill a register.
inline constexpr std::int64_t kAmxFewRows = 8;

struct AttentionTask {
  const float* q;  // [n_tokens, n_heads, head_dim]
  std::int64_t q_token_stride;
  std::int64_t q_head_stride;
  const std::int64_t* q_positions;  // [n_tokens], ascending
  std::int64_t n_tokens;
  std::int64_t n_heads;
  std::int64_t first_head;  // of the item's, which KvBlockRef::seen_by tells apart
  const KvBlockRef* blocks;
  std::int64_t n_blocks;
  std::int64_t n_blocks_ahead;  // behind them: what the thread reads after this task
  std::int64_t mask_sink;
  std::int64_t mask_recent;

  std::int64_t head_dim;
  std::int64_t block_size;
  KvType k_type;
  KvType v_type;
  std::int64_t v_lanes;  // values in a word of V
  std::size_t block_bytes;
  // Of parts of a block, in bytes; scales and minima of quantised types only.
  std::size_t k_scales_at;
  std::size_t k_minima_at;
  std::size_t v_at;
  std::size_t v_scales_at;
  std::size_t v_minima_at;
  // Rounds queries and probabilities to bf16 and multiplies pairs (VDPBF16PS), where the
  // instruction set has that; else K and V of bf16 are widened.
  bool multiplies_bf16_pairs;
  float sm_scale;

  float* o;  // [n_tokens, n_heads, head_dim]
  std::int64_t o_token_stride;
  std::int64_t o_head_stride;
  float* m;  // [n_tokens, n_heads]
  std::int64_t m_token_stride;
  std::int64_t m_head_stride;
  float* l;  // [n_tokens, n_heads]
  std::int64_t l_token_stride;
  std::int64_t l_head_stride;
  // What a row adds up does not depend on the rows beside it: panels end where positions are
  // multiples of their length, and products do not depend on the number of rows.
  bool rows_apart;
  // A panel is no longer than a block, unless that is too short for one: K of a block and then its
  // V, the order in which memory answers fastest.
  bool reads_in_order;
  bool starts_empty;   // o, m, l are only written, as if they were empty
  std::byte* scratch;  // aligned to 64 bytes
};

}  // namespace longhaul::cpu
