#include "tools/identify/layer_gradient.h"

#include <algorithm>

#include "kernels/backward/attention_backward.h"
#include "kernels/backward/linear_backward.h"
#include "kernels/backward/mix_heads.h"
#include "kernels/backward/rows_backward.h"
#include "kernels/linear.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tools/identify/device_rows.h"
#include "tools/identify/ring_keys.h"

namespace longhaul {
namespace {

// Rows of the feed-forward network at a time: wide enough that turning its weights costs little
// beside the products, and its three wide activations stay small.
constexpr std::int64_t kFfnRows = 1024;

using Matrix = DeviceTensor<float, 2>;
using Heads = DeviceTensor<float, 3>;

TensorView<float, 2> as_matrix(const Heads& x) {
  return {x.data(), {x.dim(0), x.dim(1) * x.dim(2)}};
}
TensorView<float, 2> as_rows_of_heads(const TensorView<float, 3>& x) {
  return {x.data(), {x.dim(0) * x.dim(1), x.dim(2)}};
}

// to's rows of the part += rows.
void add_rows(StreamRef stream, const TensorView<float, 2>& to, const RowParts& parts,
              const TensorView<const float, 2>& rows) {
  for_parts(parts, [&](Extent run, std::int64_t at) {
    if (run.empty()) return;
    const TensorView<const float, 2> part = rows.slice(0, {at, at + run.size()});
    residual_add(stream,
                 {.hidden = to.slice(0, run),
                  .parts = {part.data(), {1, part.dim(0), part.dim(1)}, {0, part.stride(0), 1}},
                  .bias = {}});
  });
}

}  // namespace

// What is known of a layer's heads. `before` is queries and keys before the norm of their heads.
struct LayerBackward::Projected {
  RowParts written;  // rows of what is read
  std::vector<std::int64_t> positions;
  Matrix cos, minus_sin, sin;  // [n_read, head_dim / 2]
  Heads q, k, v;               // q of the written rows
  Heads q_before, k_before;    // empty without a norm
  // Of all ranks, by position.
  std::vector<std::int64_t> all_positions;
  Heads all_k, all_v;
  // Gradients.
  Heads d_q, d_k, d_v, all_d_k, all_d_v;
};

LayerBackward::LayerBackward(const ModelSpec& spec, Communicator& comm, StreamRef stream)
    : spec_(spec),
      comm_(comm),
      stream_(stream),
      frequencies_(rope_frequencies(spec)),
      norm_eps_(static_cast<float>(spec.norm_eps)),
      sm_scale_(spec.sm_scale()) {}

// The gradient of the residual stream between attention and feed-forward network.
DeviceTensor<float, 2> LayerBackward::feed_forward(const LayerGradientArgs& args) const {
  const LayerWeights& layer = args.layer;
  const std::int64_t n_rows = args.middle.dim(0);
  Matrix d_middle(stream_, {n_rows, spec_.d_model});
  copy_floats(stream_, d_middle.data(), args.d_output.data(), args.d_output.size());
  const std::int64_t n_tile = std::min(n_rows, kFfnRows);
  const Matrix normed_memory(stream_, {n_tile, spec_.d_model});
  const Matrix gate_memory(stream_, {n_tile, spec_.d_ff});
  const Matrix up_memory(stream_, {n_tile, spec_.d_ff});
  const Matrix d_memory(stream_, {n_tile, spec_.d_ff});
  for (std::int64_t begin = 0; begin < n_rows; begin += kFfnRows) {
    const Extent rows{begin, std::min(n_rows, begin + kFfnRows)};
    const auto tile = [&](const Matrix& x) { return x.view().slice(0, {0, rows.size()}); };
    const auto normed = tile(normed_memory), gate = tile(gate_memory), up = tile(up_memory),
               d = tile(d_memory);
    const auto x = args.middle.slice(0, rows);
    rms_norm(stream_, {.x = x, .weight = layer.ffn_norm, .eps = norm_eps_, .out = normed});
    linear(stream_, {.x = normed, .weight = layer.gate, .bias = layer.gate_bias, .out = gate});
    linear(stream_, {.x = normed, .weight = layer.up, .bias = layer.up_bias, .out = up});
    linear_backward(stream_,
                    {.d_out = args.d_output.slice(0, rows), .weight = layer.down, .d_x = d});
    swiglu_backward(stream_, {.gate = gate, .up = up, .d_out = d, .d_gate = gate, .d_up = up});
    linear_backward(stream_, {.d_out = gate, .weight = layer.gate, .d_x = normed});
    linear_backward(
        stream_,
        {.d_out = up, .weight = layer.up, .d_x = normed, .output = LinearOutput::kAccumulate});
    rms_norm_backward(stream_, {.x = x,
                                .weight = layer.ffn_norm,
                                .eps = norm_eps_,
                                .d_out = normed,
                                .d_x = d_middle.view().slice(0, rows),
                                .adds = true});
  }
  return d_middle;
}

// Queries, keys and values as the forward pass had them.
LayerBackward::Projected LayerBackward::project(const LayerGradientArgs& args) const {
  const LayerWeights& layer = args.layer;
  const std::int64_t n_rows = args.input.dim(0);
  Projected p;
  p.positions = args.deal.positions(args.read, comm_.rank());
  p.written = rows_in(p.positions, args.written);
  const auto angles = [&](std::span<const std::int64_t> positions, const Matrix& sin) {
    rope_angles(stream_, {.positions = positions,
                          .inverse_frequencies = frequencies_.inverse_frequencies,
                          .attention_scale = frequencies_.attention_scale,
                          .cos = p.cos.view(),
                          .sin = sin.view()});
  };
  for (Matrix* x : {&p.cos, &p.sin, &p.minus_sin})
    *x = Matrix(stream_, {n_rows, spec_.head_dim / 2});
  std::vector<std::int64_t> below;  // whose cosines are the same
  for (const std::int64_t position : p.positions) below.push_back(-position);
  angles(below, p.minus_sin);
  angles(p.positions, p.sin);
  const Matrix normed(stream_, {n_rows, spec_.d_model});
  rms_norm(
      stream_,
      {.x = args.input, .weight = layer.attention_norm, .eps = norm_eps_, .out = normed.view()});
  p.k = Heads(stream_, {n_rows, spec_.n_kv_heads, spec_.head_dim});
  p.v = Heads(stream_, {n_rows, spec_.n_kv_heads, spec_.head_dim});
  const auto project = [&](const Matrix& x, const WeightView& weight, std::span<const float> bias,
                           const Heads& out) {
    linear(stream_, {.x = x.view(), .weight = weight, .bias = bias, .out = as_matrix(out)});
  };
  project(normed, layer.k, layer.k_bias, p.k);
  project(normed, layer.v, layer.v_bias, p.v);
  const Matrix normed_written = rows_of<2>(stream_, normed.view(), p.written);
  p.q = Heads(stream_, {p.written.size(), spec_.n_heads, spec_.head_dim});
  project(normed_written, layer.q, layer.q_bias, p.q);
  const auto rotate = [&](const Heads& x, Heads& before, std::span<const float> norm,
                          const TensorView<const float, 2>& cos,
                          const TensorView<const float, 2>& sin) {
    if (!norm.empty()) {
      before = Heads(stream_, x.view().shape());
      copy_floats(stream_, before.data(), x.data(), x.size());
      rms_norm(stream_, {.x = as_rows_of_heads(x.view()),
                         .weight = norm,
                         .eps = norm_eps_,
                         .out = as_rows_of_heads(x.view())});
    }
    rope(stream_, {.x = x.view(), .cos = cos, .sin = sin});
  };
  rotate(p.k, p.k_before, layer.k_norm, p.cos.view(), p.sin.view());
  const Matrix cos = rows_of<2>(stream_, p.cos.view(), p.written);
  const Matrix sin = rows_of<2>(stream_, p.sin.view(), p.written);
  rotate(p.q, p.q_before, layer.q_norm, cos.view(), sin.view());
  return p;
}

// Keys and values of all ranks, by position.
void LayerBackward::gather_keys(const LayerGradientArgs& args, Projected& p) const {
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto positions = args.deal.positions(args.read, rank);
    p.all_positions.insert(p.all_positions.end(), positions.begin(), positions.end());
  }
  std::sort(p.all_positions.begin(), p.all_positions.end());
  p.all_k = gather_rows(stream_, comm_, args.deal, args.read, std::move(p.k));
  p.all_v = gather_rows(stream_, comm_, args.deal, args.read, std::move(p.v));
}

// From the middle of the layer back to queries, keys and values, and to the gates.
void LayerBackward::attend(const LayerGradientArgs& args, Projected& p,
                           const TensorView<const float, 2>& d_middle,
                           LayerGradient& gradient) const {
  const Heads d_mixed(stream_, p.q.view().shape());
  linear_backward(stream_, {.d_out = d_middle, .weight = args.layer.o, .d_x = as_matrix(d_mixed)});
  p.d_q = Heads(stream_, p.q.view().shape());
  if (args.gates.empty()) {
    copy_floats(stream_, p.d_q.data(), d_mixed.data(), d_mixed.size());
  } else {
    mix_heads(stream_, {.gates = args.gates, .own = d_mixed.view(), .out = p.d_q.view()});
  }
  std::vector<std::int64_t> q_positions;
  for_parts(p.written, [&](Extent rows, std::int64_t) {
    q_positions.insert(q_positions.end(), p.positions.begin() + rows.begin,
                       p.positions.begin() + rows.end);
  });
  const Heads o(stream_, p.q.view().shape());
  p.all_d_k = Heads(stream_, p.all_k.view().shape());
  p.all_d_v = Heads(stream_, p.all_k.view().shape());
  attention_backward(stream_, {.q = p.q.view(),
                               .q_positions = q_positions,
                               .k = p.all_k.view(),
                               .v = p.all_v.view(),
                               .k_positions = p.all_positions,
                               .mask = args.mask,
                               .sm_scale = sm_scale_,
                               .sink_logits = args.layer.sink_logits,
                               .d_o = p.d_q.view(),
                               .o = o.view(),
                               .d_q = p.d_q.view(),
                               .d_k = p.all_d_k.view(),
                               .d_v = p.all_d_v.view()});
  if (!args.gates.empty()) gradient.d_gates = gate_sums(args, d_mixed.view(), o.view());
}

// Over this rank's rows, one after the other.
std::vector<double> LayerBackward::gate_sums(const LayerGradientArgs& args,
                                             const TensorView<const float, 3>& d_mixed,
                                             const TensorView<const float, 3>& own) const {
  const Matrix of_rows(stream_, {d_mixed.dim(0), spec_.n_kv_heads});
  gate_gradients(stream_,
                 {.d_mixed = d_mixed, .other = args.teacher, .own = own, .out = of_rows.view()});
  const Tensor<float, 2> there = on_host<2>(stream_, of_rows.view());
  std::vector<double> sums(static_cast<std::size_t>(spec_.n_kv_heads));
  for (std::int64_t i = 0; i < there.size(); ++i)
    sums[static_cast<std::size_t>(i % spec_.n_kv_heads)] += static_cast<double>(there.data()[i]);
  return sums;
}

// Every rank's queries give something to all keys: summed up, and each rank takes its own.
void LayerBackward::share_key_gradients(const LayerGradientArgs& args, Projected& p) const {
  if (comm_.size() == 1) {
    p.d_k = std::move(p.all_d_k);
    p.d_v = std::move(p.all_d_v);
    return;
  }
  const auto share = [&](Heads& all, Heads& own) {
    comm_.all_reduce_sum(std::span(all.data(), static_cast<std::size_t>(all.size())));
    own = own_rows(stream_, comm_, args.deal, args.read, all.view());
  };
  share(p.all_d_k, p.d_k);
  share(p.all_d_v, p.d_v);
}

// Through RoPE and the norm of heads, in place.
void LayerBackward::turn_back(const TensorView<float, 3>& d,
                              const TensorView<const float, 3>& before, std::span<const float> norm,
                              const Projected& p, const RowParts& rows) const {
  const Matrix cos = rows_of<2>(stream_, p.cos.view(), rows);
  const Matrix minus_sin = rows_of<2>(stream_, p.minus_sin.view(), rows);
  rope(stream_, {.x = d, .cos = cos.view(), .sin = minus_sin.view()});
  if (norm.empty()) return;
  rms_norm_backward(stream_, {.x = {before.data(), {d.dim(0) * d.dim(1), d.dim(2)}},
                              .weight = norm,
                              .eps = norm_eps_,
                              .d_out = as_rows_of_heads(d),
                              .d_x = as_rows_of_heads(d)});
}

void LayerBackward::project_back(const LayerGradientArgs& args, const Projected& p,
                                 const TensorView<const float, 2>& d_middle,
                                 LayerGradient& gradient) const {
  const LayerWeights& layer = args.layer;
  const auto flat = [](const Heads& x) {
    return TensorView<const float, 2>(x.data(), {x.dim(0), x.dim(1) * x.dim(2)});
  };
  const Matrix d_normed(stream_, {args.input.dim(0), spec_.d_model});
  linear_backward(stream_, {.d_out = flat(p.d_k), .weight = layer.k, .d_x = d_normed.view()});
  linear_backward(stream_, {.d_out = flat(p.d_v),
                            .weight = layer.v,
                            .d_x = d_normed.view(),
                            .output = LinearOutput::kAccumulate});
  const Matrix d_written(stream_, {p.written.size(), spec_.d_model});
  linear_backward(stream_, {.d_out = flat(p.d_q), .weight = layer.q, .d_x = d_written.view()});
  add_rows(stream_, d_normed.view(), p.written, d_written.view());
  gradient.d_input = Matrix(stream_, {args.input.dim(0), spec_.d_model});
  rms_norm_backward(stream_, {.x = args.input,
                              .weight = layer.attention_norm,
                              .eps = norm_eps_,
                              .d_out = d_normed.view(),
                              .d_x = gradient.d_input.view()});
  add_rows(stream_, gradient.d_input.view(), p.written, d_middle);
}

LayerGradient LayerBackward::run(const LayerGradientArgs& args) const {
  LayerGradient gradient;
  Matrix d_middle = feed_forward(args);
  Projected p = project(args);
  gather_keys(args, p);
  attend(args, p, d_middle.view(), gradient);
  if (!args.wants_input) return gradient;
  share_key_gradients(args, p);
  const RowParts all{.first = {0, args.input.dim(0)}, .last = {}};
  turn_back(p.d_k.view(), p.k_before.view(), args.layer.k_norm, p, all);
  turn_back(p.d_q.view(), p.q_before.view(), args.layer.q_norm, p, p.written);
  project_back(args, p, d_middle.view(), gradient);
  return gradient;
}

}  // namespace longhaul
