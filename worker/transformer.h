// The forward pass of this worker's layers. A layer is a row of visible phases (DESIGN 4 and 5):
// keys and values of own tokens, append, queries, attend to own blocks, finish, feed forward, trim.
// What other ranks contribute enters between them: partial states between attend and finish.
#pragma once
#include <cstdint>
#include <vector>

#include "base/device.h"
#include "kernels/tensor.h"
#include "model/rope_frequencies.h"
#include "worker/attention/own_blocks.h"
#include "worker/batch.h"
#include "worker/kv/cache_layout.h"
#include "worker/phase_times.h"
#include "worker/step_buffers.h"
#include "worker/weights.h"

namespace longhaul {

// Used by one thread; weights and layout must outlive it.
class Transformer {
 public:
  Transformer(const Weights& weights, const CacheLayout& layout);

  // Runs all layers over the batch and appends its tokens to the caches. Returns the residual
  // stream after the last layer, [n_rows, d_model], before the final norm; valid until the next
  // call. After the model's last layer only the wanted rows: [batch.wanted->size(), d_model].
  // Throws kOutOfMemory when the cache is full and kInvalidArgument for a token outside the
  // vocabulary; after kOutOfMemory the caches of the batch can only be dropped.
  TensorView<const float, 2> forward(const Batch& batch);

  // Final norm and vocabulary projection of such rows, contiguous: [n_rows, vocab_size], valid
  // until the next call. The caller takes as many rows at a time as it has memory for.
  TensorView<const float, 2> logits(const TensorView<const float, 2>& hidden);

  const ModelSpec& spec() const { return weights_.spec(); }
  PhaseTimes& times() { return times_; }

 private:
  void begin(const Batch& batch);
  void run_layer(std::int64_t number, const Batch& batch);
  void project_keys_values(const LayerWeights& layer);
  void project_queries(const LayerWeights& layer);
  Batch keep_wanted(const Batch& batch);
  void finish(const LayerWeights& layer);
  void feed_forward(const LayerWeights& layer);

  const Weights& weights_;
  const CacheLayout& layout_;
  RopeFrequencies frequencies_;
  float norm_eps_;
  float sm_scale_;
  StreamRef stream_ = StreamRef::cpu();
  StepBuffers buffers_;
  OwnBlocks own_blocks_;
  std::vector<BatchSegment> wanted_segments_;
  Tensor<float, 2> logits_normed_memory_;
  Tensor<float, 2> logits_memory_;
  PhaseTimes times_;
};

}  // namespace longhaul
