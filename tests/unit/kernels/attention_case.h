// A random attention problem laid out in cache blocks, with the same problem for the reference.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/reference/attention.h"
#include "tests/support/random.h"

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
  bool gaps = true;         // positions jump between blocks, blocks are partly filled and shuffled
  bool after_keys = false;  // all queries come after all keys (decode)
};

std::string describe(const AttentionShape& shape);
AttentionShape random_shape(Random& random);

// Owns the memory; items() are views of it. Not movable.
class AttentionProblem {
 public:
  AttentionProblem(const AttentionShape& shape, std::uint64_t seed);
  AttentionProblem(const AttentionProblem&) = delete;
  AttentionProblem& operator=(const AttentionProblem&) = delete;

  KvBlockShape block_shape() const;
  AttentionArgs args() const { return {block_shape(), sm_scale_, items_}; }
  // Blocks [begin, end) only.
  std::vector<AttentionItem> items_with_blocks(Extent blocks) const;
  SoftmaxState& state() { return state_; }
  // Clears the state, runs attention and gives the finished output [q_len, n_heads, head_dim].
  std::vector<float> run();
  std::vector<float> finished(std::span<const float> sink_logits = {});
  reference::AttentionCase reference_case() const;
  std::int64_t n_heads() const { return shape_.n_kv_heads * shape_.gqa_group; }

 private:
  void place_blocks(Random& random);
  void fill_blocks(Random& random);
  void make_items();

  AttentionShape shape_;
  float sm_scale_;
  std::vector<float> q_;  // [q_len, n_heads, head_dim]
  std::vector<std::int64_t> q_positions_;
  std::vector<float> k_;  // [kv_len, n_kv_heads, head_dim], as the blocks hold them
  std::vector<float> v_;
  std::vector<std::int64_t> k_positions_;
  std::vector<Tensor<std::byte, 1>> memory_;     // [n_kv_heads * n_blocks]
  std::vector<std::vector<KvBlockRef>> blocks_;  // of each KV head
  std::vector<AttentionItem> items_;             // of each KV head
  SoftmaxState state_;
};

}  // namespace longhaul::test
