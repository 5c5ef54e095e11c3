// A random attention problem laid out in cache blocks, with the same problem for the reference.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/reference/attention.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {

struct AttentionShape {
  std::int64_t q_len = 1;
  std::int64_t n_kv_heads = 1;
  std::int64_t gqa_group = 1;
  std::int64_t head_dim = 64;
  std::int64_t n_blocks = 1;
  std::int64_t block_size = 64;
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  AttentionMask mask = {};
  bool gaps = true;          // positions jump between blocks, blocks are partly filled and shuffled
  bool after_keys = false;   // all queries come after all keys (decode)
  bool tells_heads = false;  // each slot of some blocks is seen by some query heads
  // Of scores. With large ones, queries are numbers that bf16 holds: rounding them would show.
  float deviation = 1.0F;
};

std::string describe(const AttentionShape& shape);
AttentionShape random_shape(Random& random);

// Owns the memory, on the stream's device; items are views of it. Not movable. Blocks are filled on
// the CPU and copied: their bytes are the same everywhere.
class AttentionProblem {
 public:
  AttentionProblem(StreamRef stream, const AttentionShape& shape, std::uint64_t seed);
  AttentionProblem(const AttentionProblem&) = delete;
  AttentionProblem& operator=(const AttentionProblem&) = delete;

  KvBlockShape block_shape() const;
  AttentionArgs args() const { return {block_shape(), sm_scale_, items_}; }
  // Blocks [begin, end) only.
  std::vector<AttentionItem> items_with_blocks(Extent blocks) const;
  void clear_state();
  SoftmaxState state() const { return state_.state(); }
  // Clears the state, runs attention and gives the finished output [q_len, n_heads, head_dim].
  std::vector<float> run();
  std::vector<float> finished(std::span<const float> sink_logits = {});
  reference::AttentionCase reference_case() const;
  std::int64_t n_heads() const { return shape_.n_kv_heads * shape_.gqa_group; }

 private:
  void place_blocks(Random& random);
  void fill_blocks(Random& random);
  void tell_heads(Random& random);
  void make_items();

  StreamRef stream_;
  AttentionShape shape_;
  float sm_scale_;
  std::vector<float> q_;  // [q_len, n_heads, head_dim]
  std::vector<std::int64_t> q_positions_;
  std::vector<float> k_;  // [kv_len, n_kv_heads, head_dim], as the blocks hold them
  std::vector<float> v_;
  std::vector<std::int64_t> k_positions_;
  std::vector<Memory<std::byte>> memory_;  // [n_kv_heads * n_blocks]
  Memory<float> q_there_;
  std::vector<std::vector<KvBlockRef>> blocks_;  // of each KV head
  std::vector<SeenBy> seen_by_;                  // [n_kv_heads, kv_len], or empty
  Memory<SeenBy> seen_by_there_;                 // the same
  std::vector<AttentionItem> items_;             // of each KV head
  StateThere state_;
};

}  // namespace longhaul::test
