// The forward pass on one rank that has all of a batch's keys. A layer is a row of visible phases:
// queries, keys and values of the new tokens, append, attend to the caches, finish, feed forward,
// trim. With other ranks: worker/ring/.
#pragma once
#include <optional>
#include <vector>

#include "kernels/tensor.h"
#include "worker/attention/attention_work.h"
#include "worker/attention/compensation.h"
#include "worker/attention/own_blocks.h"
#include "worker/attention/own_merging.h"
#include "worker/attention/page_choice.h"
#include "worker/batch.h"
#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"

namespace longhaul {

// Used by one thread; compute and layout must outlive it.
class Transformer {
 public:
  Transformer(LayerCompute& compute, const CacheLayout& layout);

  // Runs all layers over the batch and appends its tokens to the caches. Returns the residual
  // stream after the last layer, [n_rows, d_model], before the final norm; valid until the next
  // call. After the model's last layer only the wanted rows: [batch.wanted->size(), d_model].
  // Throws kOutOfMemory when the cache is full and kInvalidArgument for a token outside the
  // vocabulary; after kOutOfMemory the caches of the batch can only be dropped.
  TensorView<const float, 2> forward(const Batch& batch);

 private:
  void begin(const Batch& batch);
  void run_layer(LayerId number, const Batch& batch);
  void make_heads(LayerId number, const Batch& batch, LayerCompute::Heads which);
  void make_queries(const LayerWeights& layer);
  void observe(LayerId number, const Batch& batch);
  void attend(LayerId number, const Batch& batch);
  void compensate_gone(LayerId number, const Batch& batch, const QueryRows* queries);
  void evict(LayerId number, const Batch& batch);
  Batch keep_wanted(const Batch& batch);
  StepBuffers& buffers() { return compute_.buffers(); }

  LayerCompute& compute_;
  const CacheLayout& layout_;
  OwnBlocks own_blocks_;
  std::optional<OwnMerging> merging_;  // where heads merge tokens
  AttentionWork work_;
  Compensation compensation_;
  PageChoice pages_;
  const GatherBytes alone_ = of_one_rank;
  std::vector<BatchSegment> wanted_segments_;
};

}  // namespace longhaul
