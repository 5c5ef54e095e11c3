// The arithmetic of this worker's layers on rows of activations: everything but attention, which
// depends on where the keys are (worker/attention, worker/ring). A row is one token; the rows'
// positions and hidden states are set first, then each layer is a row of visible steps. The weights
// that a step is given say how much of the layer it computes: all of it, or a part
// (layer_slice.h). What a model's layers have beyond this is added here, once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "kernels/begin_attention.h"
#include "kernels/kv_block.h"
#include "kernels/linear.h"
#include "kernels/project.h"
#include "kernels/sum_order.h"
#include "kernels/tensor.h"
#include "model/rope_frequencies.h"
#include "worker/phase_clock.h"
#include "worker/step_buffers.h"
#include "worker/weights.h"

namespace longhaul {

// Whether a row's bits may depend on which rows are computed with it (kernels/sum_order.h).
enum class RowBits : std::uint8_t { kFastest, kReproducible };
// What the rows of a step are: those of a text are read together, those of answers come one by one.
enum class RowsOf : std::uint8_t { kText, kAnswers };

// Used by one thread; weights must outlive it. Local.
class LayerCompute {
 public:
  // `stream` is of the weights' device; its owner outlives this.
  explicit LayerCompute(const Weights& weights, StreamRef stream = StreamRef::cpu(),
                        RowBits bits = RowBits::kFastest);

  // Sets the number of rows and the angles of their positions; the caller fills
  // buffers().positions and hidden states first, with embed() or from the stage before. Where rows
  // are reproducible, what they are decides in which order their sums are taken, not how many.
  // Heads side by side are so on a GPU only, where all projections of the rows may be one product
  // then.
  void set_rows(std::int64_t n_rows, RowsOf what = RowsOf::kText, Side heads = Side::kApart) {
    buffers_.set_rows(n_rows, may_be(heads));
    rows_of_ = what;
  }
  // Of the sums of these rows.
  SumOrder order() const {
    if (bits_ == RowBits::kFastest) return SumOrder::kFastest;
    return rows_of_ == RowsOf::kText ? SumOrder::kOfManyRows : SumOrder::kOfFewRows;
  }
  void set_angles();
  // Hidden states of the rows from the embedding table. Throws kInvalidArgument for a token outside
  // the vocabulary.
  void embed(std::span<const std::int32_t> tokens);

  // Of all rows what their attention takes, all at once or in two steps: keys and values, then
  // queries, of fewer rows. Norm and projections, to buffers().q, k and v;
  enum class Heads : std::uint8_t { kAll, kKeysValues, kQueries };
  void project_heads(const LayerWeights& layer, Heads which);
  // and what is left to be done with them (kernels/begin_attention.h), but for blocks of caches.
  BeginAttentionArgs attention_begin(const LayerWeights& layer, Heads which) const;

  // The same of slices of a layer's heads (layer_slice.h), and where their rows go: [n_rows, the
  // slice's heads, head_dim]. Queries, or keys and values, may be left out.
  struct HeadSlice {
    const LayerWeights* weights;
    TensorView<float, 3> q = {};
    TensorView<float, 3> k = {};
    TensorView<float, 3> v = {};
  };
  void project_heads(std::span<const HeadSlice> slices);
  BeginAttentionArgs attention_begin(const LayerWeights& layer, const TensorView<float, 3>& q,
                                     const SoftmaxStateView& state,
                                     const TensorView<float, 3>& k) const;
  // Apart where products cannot give what lies by side.
  Side may_be(Side side) const;

  // The same for whoever does other things between these steps. What all projections of the rows
  // read: buffers().normed.
  void norm_for_attention(const LayerWeights& layer);
  // K and V of all rows: [n_rows, the weights' KV heads, head_dim], contiguous. K after RoPE, or
  // before it, where the caller rotates later.
  enum class Rope : std::uint8_t { kNow, kLater };
  void project_keys_values(const LayerWeights& layer, const TensorView<float, 3>& k,
                           const TensorView<float, 3>& v, Rope when = Rope::kNow);
  // Q of all rows, likewise: [n_rows, the weights' heads, head_dim], contiguous.
  void project_queries(const LayerWeights& layer, const TensorView<float, 3>& q,
                       Rope when = Rope::kNow);
  // RoPE of all rows: [n_rows, any heads, head_dim].
  void rotate(const TensorView<float, 3>& x);

  // Where the outputs of attention and of the feed-forward network go: [n_rows, d_model].
  struct Output {
    TensorView<float, 2> out;
    LinearOutput how = LinearOutput::kOverwrite;
  };
  // The residual stream, which a whole layer's outputs are added to.
  Output residual() const { return {buffers_.hidden, LinearOutput::kAccumulate}; }
  // Each row's own key and value, added to the states of its queries: all those of buffers()
  // (kernels/own_keys.h).
  void add_own_keys(const KvBlockShape& shape);
  // Merged softmax states of the weights' heads, which become their outputs. With learned sinks
  // (ModelSpec::sink_logits) these are in them then, once.
  void finish_states(const LayerWeights& layer, const SoftmaxStateView& state);
  // From the heads' outputs [n_rows, the weights' heads, head_dim], side by side, to `to`.
  void project_outputs(const LayerWeights& layer, const TensorView<float, 3>& o, const Output& to);
  // Both at once: from states, heads side by side and not defined afterwards, to `to`.
  void project_states(const LayerWeights& layer, const SoftmaxStateView& state, const Output& to);
  // From buffers().hidden to `to`, by the weights' columns.
  void feed_forward(const LayerWeights& layer, const Output& to);
  // Its parts: the activations of at most StepBuffers::kFfnTileRows rows, [rows, the weights'
  // columns], contiguous and valid until the next call; and their projection.
  TensorView<float, 2> activate(const LayerWeights& layer, Extent rows);
  void project_activations(const LayerWeights& layer, const TensorView<const float, 2>& activations,
                           const Output& to);

  // Final norm and vocabulary projection of such rows, contiguous: [n_rows, vocab_size], valid
  // until the next call. The caller takes as many rows at a time as it has memory for.
  TensorView<const float, 2> logits(const TensorView<const float, 2>& hidden);
  // The same for some rows of the vocabulary only: [n_rows, ids.size()]. Reproducible sums are
  // those of few rows here, whatever the rows are.
  TensorView<const float, 2> logits(const TensorView<const float, 2>& hidden, Extent ids);

  const Weights& weights() const { return weights_; }
  const ModelSpec& spec() const { return weights_.spec(); }
  StepBuffers& buffers() { return buffers_; }
  PhaseClock& times() { return times_; }
  StreamRef stream() const { return stream_; }
  // Of the activations, for reports.
  std::size_t buffer_bytes() const {
    return buffers_.bytes() + logits_normed_memory_.bytes() + logits_memory_.bytes();
  }

 private:
  void multiply(LinearArgs args);
  void project_outputs(const LayerWeights& layer, const decltype(ProjectArgs::input)& input,
                       const TensorView<float, 3>& rows, const Output& to);
  StepBuffers::Ffn gate_and_up(const LayerWeights& layer, Extent rows, Side side);
  void finish_heads(const TensorView<float, 3>& x, std::span<const float> norm, Rope when);

  const Weights& weights_;
  RopeFrequencies frequencies_;
  float norm_eps_;
  StreamRef stream_;
  RowBits bits_;
  RowsOf rows_of_ = RowsOf::kText;
  std::vector<ProjectedPart> parts_;  // of a call
  StepBuffers buffers_;
  DeviceTensor<float, 2> logits_normed_memory_;
  DeviceTensor<float, 2> logits_memory_;
  PhaseClock times_;
};

}  // namespace longhaul
