#include "worker/layer_compute.h"

#include <algorithm>

#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax_state.h"
#include "kernels/swiglu.h"

namespace longhaul {

LayerCompute::LayerCompute(const Weights& weights, StreamRef stream, RowBits bits)
    : weights_(weights),
      frequencies_(rope_frequencies(weights.spec())),
      norm_eps_(static_cast<float>(weights.spec().norm_eps)),
      stream_(stream),
      bits_(bits),
      buffers_(weights.spec(), stream),
      times_(stream) {}

void LayerCompute::embed(std::span<const std::int32_t> tokens) {
  const PhaseTimer timer(times_, Phase::kEmbed);
  embedding(stream_, {.table = weights_.embedding(), .tokens = tokens, .out = buffers_.hidden});
}

void LayerCompute::set_angles() {
  const PhaseTimer timer(times_, Phase::kEmbed);
  rope_angles(stream_, {.positions = buffers_.positions,
                        .inverse_frequencies = frequencies_.inverse_frequencies,
                        .attention_scale = frequencies_.attention_scale,
                        .cos = buffers_.cos,
                        .sin = buffers_.sin});
}

void LayerCompute::norm_for_attention(const LayerWeights& layer) {
  const PhaseTimer timer(times_, Phase::kProject);
  rms_norm(stream_, {.x = buffers_.hidden,
                     .weight = layer.attention_norm,
                     .eps = norm_eps_,
                     .out = buffers_.normed});
}

// In the order that the step's rows have.
void LayerCompute::multiply(LinearArgs args) {
  args.order = order();
  linear(stream_, args);
}

void LayerCompute::project_keys_values(const LayerWeights& layer, const TensorView<float, 3>& k,
                                       const TensorView<float, 3>& v, Rope when) {
  const PhaseTimer timer(times_, Phase::kProject);
  const StepBuffers& b = buffers_;
  multiply({.x = b.normed, .weight = layer.k, .bias = layer.k_bias, .out = as_matrix(k)});
  multiply({.x = b.normed, .weight = layer.v, .bias = layer.v_bias, .out = as_matrix(v)});
  finish_heads(k, layer.k_norm, when);
}

void LayerCompute::project_queries(const LayerWeights& layer, const TensorView<float, 3>& q,
                                   Rope when) {
  const PhaseTimer timer(times_, Phase::kProject);
  multiply({.x = buffers_.normed, .weight = layer.q, .bias = layer.q_bias, .out = as_matrix(q)});
  finish_heads(q, layer.q_norm, when);
}

// Norm, where the model has one, and RoPE of queries or keys.
void LayerCompute::finish_heads(const TensorView<float, 3>& x, std::span<const float> norm,
                                Rope when) {
  if (!norm.empty()) {
    rms_norm(stream_, {.x = as_heads(x), .weight = norm, .eps = norm_eps_, .out = as_heads(x)});
  }
  if (when == Rope::kNow) rotate(x);
}

void LayerCompute::rotate(const TensorView<float, 3>& x) {
  rope(stream_, {.x = x, .cos = buffers_.cos, .sin = buffers_.sin});
}

void LayerCompute::finish_states(const LayerWeights& layer, const SoftmaxStateView& state) {
  const PhaseTimer timer(times_, Phase::kFinish);
  finish_attention(stream_, {.state = state, .sink_logits = layer.sink_logits, .out = state.o});
}

void LayerCompute::project_outputs(const LayerWeights& layer, const TensorView<float, 3>& o,
                                   const Output& to) {
  const PhaseTimer timer(times_, Phase::kFinish);
  multiply({.x = as_matrix(o),
            .weight = layer.o,
            .bias = layer.o_bias,
            .out = to.out,
            .output = to.how});
}

void LayerCompute::norm_for_feed_forward(const LayerWeights& layer) {
  const PhaseTimer timer(times_, Phase::kFeedForward);
  rms_norm(
      stream_,
      {.x = buffers_.hidden, .weight = layer.ffn_norm, .eps = norm_eps_, .out = buffers_.normed});
}

TensorView<float, 2> LayerCompute::activate(const LayerWeights& layer, Extent rows) {
  const PhaseTimer timer(times_, Phase::kFeedForward);
  const StepBuffers& b = buffers_;
  const TensorView<float, 2> x = b.normed.slice(0, rows);
  const TensorView<float, 2> gate(b.gate.data(), {rows.size(), layer.gate.n_out});
  const TensorView<float, 2> up(b.up.data(), {rows.size(), layer.up.n_out});
  multiply({.x = x, .weight = layer.gate, .bias = layer.gate_bias, .out = gate});
  multiply({.x = x, .weight = layer.up, .bias = layer.up_bias, .out = up});
  swiglu(stream_, {.gate = gate, .up = up, .out = gate});
  return gate;
}

void LayerCompute::project_activations(const LayerWeights& layer,
                                       const TensorView<const float, 2>& activations,
                                       const Output& to) {
  const PhaseTimer timer(times_, Phase::kFeedForward);
  multiply({.x = activations,
            .weight = layer.down,
            .bias = layer.down_bias,
            .out = to.out,
            .output = to.how});
}

void LayerCompute::feed_forward(const LayerWeights& layer, const Output& to) {
  norm_for_feed_forward(layer);
  const std::int64_t n_rows = buffers_.hidden.dim(0);
  for (std::int64_t begin = 0; begin < n_rows; begin += StepBuffers::kFfnTileRows) {
    const Extent rows{begin, std::min(n_rows, begin + StepBuffers::kFfnTileRows)};
    project_activations(layer, activate(layer, rows), {to.out.slice(0, rows), to.how});
  }
}

TensorView<const float, 2> LayerCompute::logits(const TensorView<const float, 2>& hidden) {
  return logits(hidden, {0, spec().vocab_size});
}

TensorView<const float, 2> LayerCompute::logits(const TensorView<const float, 2>& hidden,
                                                Extent ids) {
  const PhaseTimer timer(times_, Phase::kLogits);
  const std::int64_t n_rows = hidden.dim(0);
  if (logits_memory_.data() == nullptr || logits_memory_.dim(0) < n_rows ||
      logits_memory_.dim(1) < ids.size()) {
    logits_normed_memory_ = {};  // frees first
    logits_memory_ = {};
    logits_normed_memory_ = DeviceTensor<float, 2>(stream_, {n_rows, spec().d_model});
    logits_memory_ = DeviceTensor<float, 2>(stream_, {n_rows, ids.size()});
  }
  const auto normed = logits_normed_memory_.view().slice(0, {0, n_rows});
  const TensorView<float, 2> out(logits_memory_.data(), {n_rows, ids.size()});
  rms_norm(stream_,
           {.x = hidden, .weight = weights_.final_norm(), .eps = norm_eps_, .out = normed});
  linear(stream_,
         {.x = normed,
          .weight = weights_.lm_head().outputs(ids),
          .bias = {},
          .out = out,
          .order = bits_ == RowBits::kFastest ? SumOrder::kFastest : SumOrder::kOfFewRows});
  return out;
}

}  // namespace longhaul
