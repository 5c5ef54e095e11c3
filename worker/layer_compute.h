// The arithmetic of this worker's layers on rows of activations: everything but attention, which
// depends on where the keys are (worker/attention, worker/ring). A row is one token; the rows'
// positions and hidden states are set first, then each layer is a row of visible steps.
#pragma once
#include <cstdint>
#include <span>

#include "base/device.h"
#include "kernels/tensor.h"
#include "model/rope_frequencies.h"
#include "worker/phase_clock.h"
#include "worker/step_buffers.h"
#include "worker/weights.h"

namespace longhaul {

// Used by one thread; weights must outlive it. Local.
class LayerCompute {
 public:
  // `stream` is of the weights' device; its owner outlives this.
  explicit LayerCompute(const Weights& weights, StreamRef stream = StreamRef::cpu());

  // Sets the number of rows and the angles of their positions; the caller fills
  // buffers().positions and hidden states first, with embed() or from the stage before.
  void set_rows(std::int64_t n_rows) { buffers_.set_rows(n_rows); }
  void set_angles();
  // Hidden states of the rows from the embedding table. Throws kInvalidArgument for a token outside
  // the vocabulary.
  void embed(std::span<const std::int32_t> tokens);

  // Norm, K and V of all rows, K after RoPE, into buffers().k and v.
  void project_keys_values(const LayerWeights& layer);
  // Q of all rows, after RoPE, into buffers().q; after project_keys_values, whose norm it reads.
  void project_queries(const LayerWeights& layer);
  // From the merged softmax state to the residual stream.
  void finish(const LayerWeights& layer);
  void feed_forward(const LayerWeights& layer);

  // Final norm and vocabulary projection of such rows, contiguous: [n_rows, vocab_size], valid
  // until the next call. The caller takes as many rows at a time as it has memory for.
  TensorView<const float, 2> logits(const TensorView<const float, 2>& hidden);
  // The same for some rows of the vocabulary only: [n_rows, ids.size()].
  TensorView<const float, 2> logits(const TensorView<const float, 2>& hidden, Extent ids);

  const Weights& weights() const { return weights_; }
  const ModelSpec& spec() const { return weights_.spec(); }
  StepBuffers& buffers() { return buffers_; }
  PhaseClock& times() { return times_; }
  StreamRef stream() const { return stream_; }
  float sm_scale() const { return sm_scale_; }
  float norm_eps() const { return norm_eps_; }
  // Of the activations, for reports.
  std::size_t buffer_bytes() const {
    return buffers_.bytes() + logits_normed_memory_.bytes() + logits_memory_.bytes();
  }

 private:
  const Weights& weights_;
  RopeFrequencies frequencies_;
  float norm_eps_;
  float sm_scale_;
  StreamRef stream_;
  StepBuffers buffers_;
  DeviceTensor<float, 2> logits_normed_memory_;
  DeviceTensor<float, 2> logits_memory_;
  PhaseClock times_;
};

}  // namespace longhaul
