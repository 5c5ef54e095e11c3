#include "worker/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/error.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax_state.h"
#include "kernels/swiglu.h"

namespace longhaul {

Transformer::Transformer(const Weights& weights, const CacheLayout& layout)
    : weights_(weights),
      layout_(layout),
      frequencies_(rope_frequencies(weights.spec())),
      norm_eps_(static_cast<float>(weights.spec().norm_eps)),
      sm_scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(weights.spec().head_dim)))),
      buffers_(weights.spec()),
      own_blocks_(layout) {
  require(weights.layers() == layout.layers(), "Transformer: weights and caches differ in layers");
}

TensorView<const float, 2> Transformer::forward(const Batch& batch) {
  begin(batch);
  for (std::int64_t number = layout_.layers().begin; number < layout_.layers().end; ++number) {
    run_layer(number, batch);
  }
  return buffers_.hidden;
}

void Transformer::run_layer(std::int64_t number, const Batch& batch) {
  const LayerWeights& layer = weights_.layer(number);
  project_keys_values(layer);
  {
    const PhaseTimer timer(times_, Phase::kAppend);
    own_blocks_.append(stream_, number, batch, buffers_.k, buffers_.v);
  }
  const bool is_last = number + 1 == spec().n_layers;
  const Batch queries = is_last && batch.wanted ? keep_wanted(batch) : batch;
  if (queries.n_rows() > 0) {
    project_queries(layer);
    {
      const PhaseTimer timer(times_, Phase::kAttend);
      clear(stream_, buffers_.state);
      own_blocks_.attend(stream_, number, queries, buffers_.q, buffers_.positions, sm_scale_,
                         buffers_.state);
    }
    finish(layer);
    feed_forward(layer);
  }
  const PhaseTimer timer(times_, Phase::kTrim);
  for (const BatchSegment& segment : batch.segments) segment.cache->trim(number);
}

// Narrows the buffers to the wanted rows and says whose they are.
Batch Transformer::keep_wanted(const Batch& batch) {
  const Extent wanted = *batch.wanted;
  buffers_.keep_rows(wanted);
  wanted_segments_.clear();
  for (const BatchSegment& segment : batch.segments) {
    const Extent rows{std::max(segment.rows.begin, wanted.begin),
                      std::min(segment.rows.end, wanted.end)};
    if (rows.empty()) continue;
    wanted_segments_.push_back(
        {.cache = segment.cache,
         .rows = {rows.begin - wanted.begin, rows.end - wanted.begin},
         .first_position = segment.first_position + rows.begin - segment.rows.begin});
  }
  return {.tokens = batch.tokens.subspan(static_cast<std::size_t>(wanted.begin),
                                         static_cast<std::size_t>(wanted.size())),
          .segments = wanted_segments_};
}

void Transformer::begin(const Batch& batch) {
  const PhaseTimer timer(times_, Phase::kEmbed);
  buffers_.set_rows(batch.n_rows());
  for (const BatchSegment& segment : batch.segments) {
    std::iota(buffers_.positions.begin() + segment.rows.begin,
              buffers_.positions.begin() + segment.rows.end, segment.first_position);
  }
  embedding(stream_,
            {.table = weights_.embedding(), .tokens = batch.tokens, .out = buffers_.hidden});
  rope_angles(stream_, {.positions = buffers_.positions,
                        .inverse_frequencies = frequencies_.inverse_frequencies,
                        .attention_scale = frequencies_.attention_scale,
                        .cos = buffers_.cos,
                        .sin = buffers_.sin});
}

void Transformer::project_keys_values(const LayerWeights& layer) {
  const PhaseTimer timer(times_, Phase::kProject);
  const StepBuffers& b = buffers_;
  rms_norm(stream_,
           {.x = b.hidden, .weight = layer.attention_norm, .eps = norm_eps_, .out = b.normed});
  linear(stream_, {.x = b.normed, .weight = layer.k, .bias = layer.k_bias, .out = as_matrix(b.k)});
  linear(stream_, {.x = b.normed, .weight = layer.v, .bias = layer.v_bias, .out = as_matrix(b.v)});
  if (spec().qk_norm) {
    rms_norm(stream_,
             {.x = as_heads(b.k), .weight = layer.k_norm, .eps = norm_eps_, .out = as_heads(b.k)});
  }
  rope(stream_, {.x = b.k, .cos = b.cos, .sin = b.sin});
}

void Transformer::project_queries(const LayerWeights& layer) {
  const PhaseTimer timer(times_, Phase::kProject);
  const StepBuffers& b = buffers_;
  linear(stream_, {.x = b.normed, .weight = layer.q, .bias = layer.q_bias, .out = as_matrix(b.q)});
  if (spec().qk_norm) {
    rms_norm(stream_,
             {.x = as_heads(b.q), .weight = layer.q_norm, .eps = norm_eps_, .out = as_heads(b.q)});
  }
  rope(stream_, {.x = b.q, .cos = b.cos, .sin = b.sin});
}

void Transformer::finish(const LayerWeights& layer) {
  const PhaseTimer timer(times_, Phase::kFinish);
  const StepBuffers& b = buffers_;
  finish_attention(stream_, {.state = b.state, .sink_logits = {}, .out = b.state.o});
  linear(stream_, {.x = as_matrix(b.state.o),
                   .weight = layer.o,
                   .bias = layer.o_bias,
                   .out = b.hidden,
                   .output = LinearOutput::kAccumulate});
}

void Transformer::feed_forward(const LayerWeights& layer) {
  const PhaseTimer timer(times_, Phase::kFeedForward);
  const StepBuffers& b = buffers_;
  rms_norm(stream_, {.x = b.hidden, .weight = layer.ffn_norm, .eps = norm_eps_, .out = b.normed});
  const std::int64_t n_rows = b.hidden.dim(0);
  for (std::int64_t begin = 0; begin < n_rows; begin += StepBuffers::kFfnTileRows) {
    const Extent rows{begin, std::min(n_rows, begin + StepBuffers::kFfnTileRows)};
    const TensorView<float, 2> x = b.normed.slice(0, rows);
    const TensorView<float, 2> gate = b.gate.slice(0, {0, rows.size()});
    const TensorView<float, 2> up = b.up.slice(0, {0, rows.size()});
    linear(stream_, {.x = x, .weight = layer.gate, .bias = layer.gate_bias, .out = gate});
    linear(stream_, {.x = x, .weight = layer.up, .bias = layer.up_bias, .out = up});
    swiglu(stream_, {.gate = gate, .up = up, .out = gate});
    linear(stream_, {.x = gate,
                     .weight = layer.down,
                     .bias = layer.down_bias,
                     .out = b.hidden.slice(0, rows),
                     .output = LinearOutput::kAccumulate});
  }
}

TensorView<const float, 2> Transformer::logits(const TensorView<const float, 2>& hidden) {
  const PhaseTimer timer(times_, Phase::kLogits);
  const std::int64_t n_rows = hidden.dim(0);
  if (logits_memory_.data() == nullptr || logits_memory_.dim(0) < n_rows) {
    logits_normed_memory_ = Tensor<float, 2>({n_rows, spec().d_model});
    logits_memory_ = Tensor<float, 2>({n_rows, spec().vocab_size});
  }
  const auto normed = logits_normed_memory_.view().slice(0, {0, n_rows});
  const auto out = logits_memory_.view().slice(0, {0, n_rows});
  rms_norm(stream_,
           {.x = hidden, .weight = weights_.final_norm(), .eps = norm_eps_, .out = normed});
  linear(stream_, {.x = normed, .weight = weights_.lm_head(), .bias = {}, .out = out});
  return out;
}

}  // namespace longhaul
