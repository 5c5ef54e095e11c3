#include "tools/identify/layer_gradient.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/backward/attention_backward.h"
#include "kernels/backward/linear_backward.h"
#include "kernels/backward/rows_backward.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tools/identify/ring_keys.h"

namespace longhaul {
namespace {

// Rows of the feed-forward network at a time: wide enough that turning its weights costs little
// beside the products, and its three wide activations stay small.
constexpr std::int64_t kFfnRows = 1024;

using Matrix = Tensor<float, 2>;
using Heads = Tensor<float, 3>;

TensorView<float, 2> as_matrix(Heads& x) { return {x.data(), {x.dim(0), x.dim(1) * x.dim(2)}}; }
TensorView<float, 2> as_rows_of_heads(const TensorView<float, 3>& x) {
  return {x.data(), {x.dim(0) * x.dim(1), x.dim(2)}};
}

// Calls body(run of rows in the larger set, first row in the smaller one).
template <typename Body>
void for_parts(const RowParts& parts, const Body& body) {
  body(parts.first, std::int64_t{0});
  body(parts.last, parts.first.size());
}

// The rows of a part of the tokens, side by side.
template <typename T, int kRank>
Tensor<T, kRank> rows_of(const TensorView<const T, kRank>& x, const RowParts& parts) {
  auto shape = x.shape();
  shape[0] = parts.size();
  Tensor<T, kRank> out(shape);
  const std::int64_t width = x.dim(0) == 0 ? 0 : x.size() / x.dim(0);
  for_parts(parts, [&](Extent rows, std::int64_t at) {
    std::copy_n(x.data() + rows.begin * width, rows.size() * width, out.data() + at * width);
  });
  return out;
}

// to's rows of the part += rows.
void add_rows(const TensorView<float, 2>& to, const RowParts& parts,
              const TensorView<const float, 2>& rows) {
  const std::int64_t width = rows.dim(1);
  for_parts(parts, [&](Extent run, std::int64_t at) {
    float* out = to.data() + run.begin * width;
    const float* in = rows.data() + at * width;
    for (std::int64_t i = 0; i < run.size() * width; ++i) out[i] += in[i];
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

LayerBackward::LayerBackward(const ModelSpec& spec, Communicator& comm)
    : spec_(spec),
      comm_(comm),
      frequencies_(rope_frequencies(spec)),
      norm_eps_(static_cast<float>(spec.norm_eps)),
      sm_scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(spec.head_dim)))) {}

// The gradient of the residual stream between attention and feed-forward network.
Tensor<float, 2> LayerBackward::feed_forward(const LayerGradientArgs& args) const {
  const LayerWeights& layer = args.layer;
  const StreamRef cpu = StreamRef::cpu();
  const std::int64_t n_rows = args.middle.dim(0);
  Matrix d_middle({n_rows, spec_.d_model});
  std::copy_n(args.d_output.data(), args.d_output.size(), d_middle.data());
  const std::int64_t n_tile = std::min(n_rows, kFfnRows);
  Matrix normed_memory({n_tile, spec_.d_model});
  Matrix gate_memory({n_tile, spec_.d_ff});
  Matrix up_memory({n_tile, spec_.d_ff});
  Matrix d_memory({n_tile, spec_.d_ff});
  for (std::int64_t begin = 0; begin < n_rows; begin += kFfnRows) {
    const Extent rows{begin, std::min(n_rows, begin + kFfnRows)};
    const auto tile = [&](Matrix& x) { return x.view().slice(0, {0, rows.size()}); };
    const auto normed = tile(normed_memory), gate = tile(gate_memory), up = tile(up_memory),
               d = tile(d_memory);
    const auto x = args.middle.slice(0, rows);
    rms_norm(cpu, {.x = x, .weight = layer.ffn_norm, .eps = norm_eps_, .out = normed});
    linear(cpu, {.x = normed, .weight = layer.gate, .bias = layer.gate_bias, .out = gate});
    linear(cpu, {.x = normed, .weight = layer.up, .bias = layer.up_bias, .out = up});
    linear_backward(StreamRef::cpu(),
                    {.d_out = args.d_output.slice(0, rows), .weight = layer.down, .d_x = d});
    swiglu_backward(StreamRef::cpu(),
                    {.gate = gate, .up = up, .d_out = d, .d_gate = gate, .d_up = up});
    linear_backward(StreamRef::cpu(), {.d_out = gate, .weight = layer.gate, .d_x = normed});
    linear_backward(
        StreamRef::cpu(),
        {.d_out = up, .weight = layer.up, .d_x = normed, .output = LinearOutput::kAccumulate});
    rms_norm_backward(StreamRef::cpu(), {.x = x,
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
  const StreamRef cpu = StreamRef::cpu();
  const std::int64_t n_rows = args.input.dim(0);
  Projected p;
  p.positions = args.deal.positions(args.read, comm_.rank());
  p.written = rows_in(p.positions, args.written);
  p.cos = Matrix({n_rows, spec_.head_dim / 2});
  p.sin = Matrix({n_rows, spec_.head_dim / 2});
  rope_angles(cpu, {.positions = p.positions,
                    .inverse_frequencies = frequencies_.inverse_frequencies,
                    .attention_scale = frequencies_.attention_scale,
                    .cos = p.cos.view(),
                    .sin = p.sin.view()});
  p.minus_sin = Matrix({n_rows, spec_.head_dim / 2});
  std::transform(p.sin.data(), p.sin.data() + p.sin.size(), p.minus_sin.data(),
                 [](float x) { return -x; });
  Matrix normed({n_rows, spec_.d_model});
  rms_norm(
      cpu,
      {.x = args.input, .weight = layer.attention_norm, .eps = norm_eps_, .out = normed.view()});
  p.k = Heads({n_rows, spec_.n_kv_heads, spec_.head_dim});
  p.v = Heads({n_rows, spec_.n_kv_heads, spec_.head_dim});
  const auto project = [&](Matrix& x, const WeightView& weight, std::span<const float> bias,
                           Heads& out) {
    linear(cpu, {.x = x.view(), .weight = weight, .bias = bias, .out = as_matrix(out)});
  };
  project(normed, layer.k, layer.k_bias, p.k);
  project(normed, layer.v, layer.v_bias, p.v);
  Matrix normed_written = rows_of<float, 2>(normed.view(), p.written);
  p.q = Heads({p.written.size(), spec_.n_heads, spec_.head_dim});
  project(normed_written, layer.q, layer.q_bias, p.q);
  const auto rotate = [&](Heads& x, Heads& before, std::span<const float> norm,
                          const TensorView<const float, 2>& cos,
                          const TensorView<const float, 2>& sin) {
    if (!norm.empty()) {
      before = Heads(x.view().shape());
      std::copy_n(x.data(), x.size(), before.data());
      rms_norm(cpu, {.x = as_rows_of_heads(x.view()),
                     .weight = norm,
                     .eps = norm_eps_,
                     .out = as_rows_of_heads(x.view())});
    }
    rope(cpu, {.x = x.view(), .cos = cos, .sin = sin});
  };
  rotate(p.k, p.k_before, layer.k_norm, p.cos.view(), p.sin.view());
  const Matrix cos = rows_of<float, 2>(p.cos.view(), p.written);
  const Matrix sin = rows_of<float, 2>(p.sin.view(), p.written);
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
  p.all_k = gather_rows(comm_, args.deal, args.read, std::move(p.k));
  p.all_v = gather_rows(comm_, args.deal, args.read, std::move(p.v));
}

// From the middle of the layer back to queries, keys and values, and to the gates.
void LayerBackward::attend(const LayerGradientArgs& args, Projected& p,
                           const TensorView<const float, 2>& d_middle,
                           LayerGradient& gradient) const {
  const std::int64_t n_rows = p.q.dim(0);
  const std::int64_t group_width = spec_.gqa_group() * spec_.head_dim;
  Heads d_mixed(p.q.view().shape());
  linear_backward(StreamRef::cpu(),
                  {.d_out = d_middle, .weight = args.layer.o, .d_x = as_matrix(d_mixed)});
  p.d_q = Heads(p.q.view().shape());
  for (std::int64_t i = 0; i < n_rows * spec_.n_kv_heads; ++i) {
    const float own = args.gates.empty()
                          ? 1.0F
                          : 1.0F - args.gates[static_cast<std::size_t>(i % spec_.n_kv_heads)];
    const float* from = d_mixed.data() + i * group_width;
    float* to = p.d_q.data() + i * group_width;
    for (std::int64_t j = 0; j < group_width; ++j) to[j] = own * from[j];
  }
  std::vector<std::int64_t> q_positions;
  for_parts(p.written, [&](Extent rows, std::int64_t) {
    q_positions.insert(q_positions.end(), p.positions.begin() + rows.begin,
                       p.positions.begin() + rows.end);
  });
  Heads o(p.q.view().shape());
  p.all_d_k = Heads(p.all_k.view().shape());
  p.all_d_v = Heads(p.all_k.view().shape());
  attention_backward(StreamRef::cpu(), {.q = p.q.view(),
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
  if (args.gates.empty()) return;
  gradient.d_gates.assign(static_cast<std::size_t>(spec_.n_kv_heads), 0.0);
  for (std::int64_t i = 0; i < n_rows * spec_.n_kv_heads; ++i) {
    const float* d = d_mixed.data() + i * group_width;
    const float* theirs = args.teacher.data() + i * group_width;
    const float* own = o.data() + i * group_width;
    float sum = 0;
    for (std::int64_t j = 0; j < group_width; ++j) sum += d[j] * (theirs[j] - own[j]);
    gradient.d_gates[static_cast<std::size_t>(i % spec_.n_kv_heads)] += static_cast<double>(sum);
  }
}

// Every rank's queries give something to all keys: summed up, and each rank takes its own.
void LayerBackward::share_key_gradients(const LayerGradientArgs& args, Projected& p) const {
  if (comm_.size() == 1) {
    p.d_k = std::move(p.all_d_k);
    p.d_v = std::move(p.all_d_v);
    return;
  }
  const std::int64_t width = spec_.n_kv_heads * spec_.head_dim;
  const auto share = [&](Heads& all, Heads& own) {
    comm_.all_reduce_sum(std::span(all.data(), static_cast<std::size_t>(all.size())));
    own = Heads({args.input.dim(0), spec_.n_kv_heads, spec_.head_dim});
    float* to = own.data();
    for (const std::int64_t position : p.positions) {
      const auto row = std::lower_bound(p.all_positions.begin(), p.all_positions.end(), position) -
                       p.all_positions.begin();
      std::copy_n(all.data() + row * width, width, to);
      to += width;
    }
  };
  share(p.all_d_k, p.d_k);
  share(p.all_d_v, p.d_v);
}

// Through RoPE and the norm of heads, in place.
void LayerBackward::turn_back(const TensorView<float, 3>& d,
                              const TensorView<const float, 3>& before, std::span<const float> norm,
                              const Projected& p, const RowParts& rows) const {
  const Matrix cos = rows_of<float, 2>(p.cos.view(), rows);
  const Matrix minus_sin = rows_of<float, 2>(p.minus_sin.view(), rows);
  rope(StreamRef::cpu(), {.x = d, .cos = cos.view(), .sin = minus_sin.view()});
  if (norm.empty()) return;
  rms_norm_backward(StreamRef::cpu(), {.x = {before.data(), {d.dim(0) * d.dim(1), d.dim(2)}},
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
  Matrix d_normed({args.input.dim(0), spec_.d_model});
  linear_backward(StreamRef::cpu(),
                  {.d_out = flat(p.d_k), .weight = layer.k, .d_x = d_normed.view()});
  linear_backward(StreamRef::cpu(), {.d_out = flat(p.d_v),
                                     .weight = layer.v,
                                     .d_x = d_normed.view(),
                                     .output = LinearOutput::kAccumulate});
  Matrix d_written({p.written.size(), spec_.d_model});
  linear_backward(StreamRef::cpu(),
                  {.d_out = flat(p.d_q), .weight = layer.q, .d_x = d_written.view()});
  add_rows(d_normed.view(), p.written, d_written.view());
  gradient.d_input = Matrix({args.input.dim(0), spec_.d_model});
  rms_norm_backward(StreamRef::cpu(), {.x = args.input,
                                       .weight = layer.attention_norm,
                                       .eps = norm_eps_,
                                       .d_out = d_normed.view(),
                                       .d_x = gradient.d_input.view()});
  add_rows(gradient.d_input.view(), p.written, d_middle);
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
