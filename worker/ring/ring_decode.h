// Decode on the ranks of a ring (docs/ring.md): one token, and guesses, for each of many sequences.
// Every rank has the hidden states of all rows; it computes the heads whose blocks it holds and its
// columns of the feed-forward network, and two sums over the ring finish a layer. start here:
// run_layer().
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device_tensor.h"
#include "kernels/kv_append.h"
#include "worker/attention/attention_work.h"
#include "worker/attention/close_blocks.h"
#include "worker/attention/compensation.h"
#include "worker/attention/page_choice.h"
#include "worker/forward.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"
#include "worker/layer_compute.h"
#include "worker/ring/decode_heads.h"
#include "worker/ring/merging_decode.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"
#include "worker/ring/split_heads.h"
#include "worker/ring/whole_sums.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class RingDecode {
 public:
  RingDecode(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
             RingContext& context);

  // Collective over the ring. Runs the stage's layers over the rows; compute.buffers() has a row
  // for each token with the same hidden state on all ranks, before and after. Throws kOutOfMemory
  // when the pool has no block.
  void run(std::span<const DecodeRow> rows);

 private:
  void run_layer(LayerId number, std::span<const DecodeRow> rows);
  void append(LayerId number, std::span<const DecodeRow> rows);
  std::vector<KvHeadId> storing_heads(LayerId number, std::span<const DecodeRow> rows) const;
  void add_items(LayerId number, std::span<const DecodeRow> rows, const DecodeHeads::NewKeys& keys);
  void attend(LayerId number, std::span<const DecodeRow> rows);
  void add_open(LayerId number, const QueryRows& queries, KvHeadId head, std::int64_t first,
                const DecodeRow& row);
  void choose_pages(LayerId number);
  std::vector<Extent> parts_by_block(Extent positions) const;
  std::optional<HeadCache::StorePlace> place_for(LayerId number, KvHeadId head, SequenceCache& of,
                                                 Extent tokens) const;
  ObservedQueries::Rows observed_row(std::int64_t row) const;
  void observe(LayerId number, std::span<const DecodeRow> rows);
  void evict(LayerId number, std::span<const DecodeRow> rows);
  void add_attention_output(LayerId number);
  void add_feed_forward(LayerId number);
  void add_sum_over_ring(std::span<const float> bias);
  void set_partial_to_zero();

  const std::vector<KvHeadId>& own_heads(LayerId number) const {
    return own_heads_[static_cast<std::size_t>(number.value - layout_.layers().begin)];
  }
  std::int64_t n_rows() { return compute_.buffers().hidden.dim(0); }

  LayerCompute& compute_;
  const CacheLayout& layout_;
  const RingStage& stage_;
  RingContext& context_;
  AttentionWork work_;
  Compensation compensation_;
  CloseBlocks closing_;  // where tokens are quantised in groups
  PageChoice pages_;
  DecodeHeads heads_;  // of the layer under way
  SplitHeads split_heads_;
  std::optional<MergingDecode> merging_;          // where heads merge tokens
  std::optional<WholeSums> whole_sums_;           // where results are reproducible
  std::vector<std::vector<KvHeadId>> own_heads_;  // [layers] those that are at home here
  std::vector<KvAppendItem> append_items_;
  std::vector<std::byte*> append_blocks_;
  DeviceTensor<float, 2> partial_memory_;
  TensorView<float, 2> partial_;  // [n_rows, d_model] this rank's part of a sum
};

}  // namespace longhaul
