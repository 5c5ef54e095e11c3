// Decode on the ranks of a ring (DESIGN 5): one token for each of many sequences. Every rank has
// the hidden states of all rows; it computes the heads whose blocks it holds and its slices of the
// feed-forward network, and two sums over the ring finish a layer. start here: run_layer().
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/copy_rows.h"
#include "kernels/device_memory.h"
#include "kernels/kv_append.h"
#include "kernels/softmax_state.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"
#include "worker/layer_compute.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// A sequence of the batch and where its new token stands.
struct DecodeRow {
  SequenceCache* cache = nullptr;
  std::int64_t position = 0;
};

// Used by one thread; what it is given must outlive it.
class RingDecode {
 public:
  RingDecode(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
             RingContext& context);

  // Collective over the ring. Runs the stage's layers over the rows; compute.buffers() has one row
  // for each with the same hidden state on all ranks, before and after. Throws kOutOfMemory when
  // the pool has no block.
  void run(std::span<const DecodeRow> rows);

 private:
  // Neighbouring KV heads that this rank attends to: their queries, new keys and state.
  struct Run {
    Extent kv_heads;
    TensorView<float, 3> q;
    SoftmaxStateView state;
    TensorView<float, 2> m;  // of the state, for the host: on CPUs the state's own
    TensorView<float, 2> l;
  };
  void run_layer(std::int64_t number, std::span<const DecodeRow> rows);
  void append(std::int64_t number, std::span<const DecodeRow> rows);
  void append_run(std::int64_t number, std::span<const DecodeRow> rows, Extent kv_heads);
  void project_queries(std::int64_t number, std::span<const DecodeRow> rows);
  void attend(std::int64_t number, std::span<const DecodeRow> rows);
  void finish_own(std::int64_t number);
  void gather_scales(std::span<const std::int64_t> split);
  void fetch_scales();
  void scale_by_others(std::span<const std::int64_t> split);
  void merge_others(std::span<const std::int64_t> split);
  template <typename Body>
  void for_each_split(std::span<const std::int64_t> split, const Body& body);
  void join_split_heads(std::int64_t number);
  void add_attention_output(std::int64_t number, const LayerWeights& weights);
  void add_feed_forward(const LayerWeights& weights);
  void add_sum_over_ring(std::span<const float> bias);

  float* floats(ByteBuffer& memory, std::int64_t n) {
    return reinterpret_cast<float*>(
        memory.reserve(compute_.stream(), static_cast<std::size_t>(n) * sizeof(float)));
  }
  std::int64_t n_rows() { return compute_.buffers().hidden.dim(0); }

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  std::vector<std::vector<std::int64_t>> own_heads_;    // [layers] KV heads that are at home here
  std::vector<std::vector<std::int64_t>> split_heads_;  // [layers] KV heads with several homes
  std::vector<Run> runs_;
  ByteBuffer q_memory_, k_memory_, v_memory_, state_memory_, others_, joined_, ffn_memory_;
  std::vector<float> scales_;    // m and l of the runs' states, where those are in a GPU's memory
  std::vector<float> gathered_;  // m and l of all ranks' split heads
  DeviceTensor<float, 2> partial_memory_;
  TensorView<float, 2> partial_;  // [n_rows, d_model] this rank's part of a sum
  std::vector<AttentionItem> items_;
  std::vector<CopyRowsItem> copies_;
};

}  // namespace longhaul
