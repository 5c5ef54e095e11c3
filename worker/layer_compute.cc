#include "worker/layer_compute.h"

#include <algorithm>
#include <array>

#include "kernels/embedding.h"
#include "kernels/own_keys.h"
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

Side LayerCompute::may_be(Side side) const {
  const Extent layers = weights_.layers();
  if (stream_.device() == Device::kCpu || layers.empty()) return Side::kApart;
  const DType dtype = weights_.layer({layers.begin}).q.dtype;  // all are of one kind
  return may_lie_by_side(dtype) ? side : Side::kApart;
}

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

void LayerCompute::project_heads(const LayerWeights& layer, Heads which) {
  const StepBuffers& b = buffers_;
  HeadSlice whole = {.weights = &layer};
  if (which != Heads::kKeysValues) whole.q = b.q;
  if (which != Heads::kQueries) {
    whole.k = b.k;
    whole.v = b.v;
  }
  project_heads({&whole, 1});
}

void LayerCompute::project_heads(std::span<const HeadSlice> slices) {
  parts_.clear();
  const auto add = [&](const WeightView& weight, std::span<const float> bias,
                       const TensorView<float, 3>& x) {
    if (x.size() > 0) parts_.push_back({.weight = weight, .bias = bias, .out = as_matrix(x)});
  };
  for (const HeadSlice& slice : slices) {
    add(slice.weights->q, slice.weights->q_bias, slice.q);
    add(slice.weights->k, slice.weights->k_bias, slice.k);
    add(slice.weights->v, slice.weights->v_bias, slice.v);
  }
  if (parts_.empty()) return;
  const PhaseTimer timer(times_, Phase::kProject);
  const StepBuffers& b = buffers_;
  const LayerWeights& layer = *slices.front().weights;
  project(stream_, {.input = NormedInput{b.hidden, layer.attention_norm, norm_eps_},
                    .rows = b.normed,
                    .parts = parts_,
                    .order = order()});
}

BeginAttentionArgs LayerCompute::attention_begin(const LayerWeights& layer, Heads which) const {
  const StepBuffers& b = buffers_;
  const bool asks = which != Heads::kKeysValues;
  return attention_begin(layer, asks ? b.q : TensorView<float, 3>(),
                         asks ? b.state : SoftmaxStateView(),
                         which != Heads::kQueries ? b.k : TensorView<float, 3>());
}

BeginAttentionArgs LayerCompute::attention_begin(const LayerWeights& layer,
                                                 const TensorView<float, 3>& q,
                                                 const SoftmaxStateView& state,
                                                 const TensorView<float, 3>& k) const {
  return {.q = q,
          .k = k,
          .q_norm = layer.q_norm,
          .k_norm = layer.k_norm,
          .norm_eps = norm_eps_,
          .cos = buffers_.cos,
          .sin = buffers_.sin,
          .append = {},
          .state = state};
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

void LayerCompute::add_own_keys(const KvBlockShape& shape) {
  longhaul::add_own_keys(stream_, {.shape = shape,
                                   .sm_scale = spec().sm_scale(),
                                   .q = buffers_.q,
                                   .k = buffers_.k,
                                   .v = buffers_.v,
                                   .state = buffers_.state});
}

void LayerCompute::finish_states(const LayerWeights& layer, const SoftmaxStateView& state) {
  const PhaseTimer timer(times_, Phase::kFinish);
  finish_attention(stream_, {.state = state, .sink_logits = layer.sink_logits, .out = state.o});
}

void LayerCompute::project_outputs(const LayerWeights& layer, const TensorView<float, 3>& o,
                                   const Output& to) {
  const PhaseTimer timer(times_, Phase::kFinish);
  project_outputs(layer, StoredInput{}, o, to);
}

void LayerCompute::project_states(const LayerWeights& layer, const SoftmaxStateView& state,
                                  const Output& to) {
  const PhaseTimer timer(times_, Phase::kFinish);
  project_outputs(layer, AttendedInput{state, layer.sink_logits}, state.o, to);
}

void LayerCompute::project_outputs(const LayerWeights& layer,
                                   const decltype(ProjectArgs::input)& input,
                                   const TensorView<float, 3>& rows, const Output& to) {
  const ProjectedPart part = {
      .weight = layer.o, .bias = layer.o_bias, .out = to.out, .output = to.how};
  project(stream_,
          {.input = input, .rows = as_matrix(rows), .parts = {&part, 1}, .order = order()});
}

StepBuffers::Ffn LayerCompute::gate_and_up(const LayerWeights& layer, Extent rows, Side side) {
  const StepBuffers::Ffn ffn = buffers_.ffn(rows.size(), layer.gate.n_out, may_be(side));
  const std::array<ProjectedPart, 2> parts = {
      ProjectedPart{.weight = layer.gate, .bias = layer.gate_bias, .out = ffn.gate},
      ProjectedPart{.weight = layer.up, .bias = layer.up_bias, .out = ffn.up}};
  project(stream_, {.input = NormedInput{buffers_.hidden.slice(0, rows), layer.ffn_norm, norm_eps_},
                    .rows = buffers_.normed.slice(0, rows),
                    .parts = parts,
                    .order = order()});
  return ffn;
}

TensorView<float, 2> LayerCompute::activate(const LayerWeights& layer, Extent rows) {
  const PhaseTimer timer(times_, Phase::kFeedForward);
  const StepBuffers::Ffn ffn = gate_and_up(layer, rows, Side::kApart);
  swiglu(stream_, {.gate = ffn.gate, .up = ffn.up, .out = ffn.gate});
  return ffn.gate;
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
  const PhaseTimer timer(times_, Phase::kFeedForward);
  const std::int64_t n_rows = buffers_.hidden.dim(0);
  for (std::int64_t begin = 0; begin < n_rows; begin += StepBuffers::kFfnTileRows) {
    const Extent rows{begin, std::min(n_rows, begin + StepBuffers::kFfnTileRows)};
    const StepBuffers::Ffn ffn = gate_and_up(layer, rows, Side::kBySide);
    const ProjectedPart down = {.weight = layer.down,
                                .bias = layer.down_bias,
                                .out = to.out.slice(0, rows),
                                .output = to.how};
    project(stream_, {.input = ActivatedInput{ffn.gate, ffn.up},
                      .rows = ffn.gate,
                      .parts = {&down, 1},
                      .order = order()});
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
  const ProjectedPart head = {.weight = weights_.lm_head().outputs(ids), .out = out};
  project(stream_,
          {.input = NormedInput{hidden, weights_.final_norm(), norm_eps_},
           .rows = normed,
           .parts = {&head, 1},
           .order = bits_ == RowBits::kFastest ? SumOrder::kFastest : SumOrder::kOfFewRows});
  return out;
}

}  // namespace longhaul
