// One case of attention with its memory: queries against a cache of random keys and values, as the
// engine would call the operator.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kernels/attention.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

struct AttentionCase {
  std::int64_t q_len = 1;
  std::int64_t kv_len = 1;  // the queries are the last q_len of these positions
  std::int64_t n_kv_heads = 1;
  std::int64_t gqa_group = 1;
  std::int64_t head_dim = 128;
  AttentionMask mask = {};
  std::int64_t chunk_len = 0;  // queries of one call; 0: all
  // Standard deviation of the scores q . k / sqrt(head_dim). 1 spreads attention over all keys; the
  // scores of trained heads lie far apart, and then most probabilities vanish.
  float score_deviation = 1.0F;
};

// `type` is that of keys and values.
Work attention_work(const AttentionCase& c, KvType type);

// Owns the memory. Used by one thread.
class AttentionRun {
 public:
  AttentionRun(const AttentionCase& c, KvType type);
  // All queries once, chunk after chunk, each against the blocks that a cache with this mask holds
  // then; a windowed head's memory is reused as the pool would. The blocks are listed beforehand,
  // as a cache has its lists at hand.
  void run();

  const KvBlockShape& shape() const { return shape_; }
  const Tensor<float, 3>& q() const { return q_; }  // [chunk_len, n_heads, head_dim]
  // The block of these positions / block_size of a KV head, in the kernels' layout.
  const std::byte* block(std::int64_t kv_head, std::int64_t number) const;
  // [n_tokens, n_heads(, head_dim)] of the last chunk.
  const SoftmaxState& state() const { return state_; }

 private:
  struct Chunk {
    Extent tokens;
    std::vector<std::int64_t> positions;
    std::vector<std::vector<KvBlockRef>> blocks;  // of each KV head
  };

  void fill_cache();
  Chunk chunk_of(Extent tokens) const;
  void run_chunk(const Chunk& chunk);
  std::vector<KvBlockRef> held_blocks(std::int64_t kv_head, Extent tokens) const;

  AttentionCase case_;
  KvBlockShape shape_;
  std::int64_t n_sink_blocks_;   // that are kept for good
  std::int64_t n_cycle_blocks_;  // after them, used over and over
  Tensor<std::byte, 1> cache_;
  std::vector<Chunk> chunks_;
  Tensor<float, 3> q_;
  SoftmaxState state_;
};

}  // namespace longhaul::bench
