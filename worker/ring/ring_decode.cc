#include "worker/ring/ring_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/linear.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "worker/ring/head_runs.h"

namespace longhaul {
namespace {

// Rows [extent) of a bias, or none.
std::span<const float> part_of(std::span<const float> bias, Extent extent) {
  if (bias.empty()) return {};
  return bias.subspan(static_cast<std::size_t>(extent.begin),
                      static_cast<std::size_t>(extent.size()));
}

Extent scaled(Extent heads, std::int64_t by) { return {heads.begin * by, heads.end * by}; }

std::byte* as_bytes(float* at) { return reinterpret_cast<std::byte*>(at); }

std::size_t bytes_of(std::int64_t n_floats) {
  return static_cast<std::size_t>(n_floats) * sizeof(float);
}

}  // namespace

RingDecode::RingDecode(LayerCompute& compute, const CacheLayout& layout, const RingStage& stage,
                       RingContext& context)
    : compute_(compute), layout_(layout), stage_(stage), context_(context) {
  const Extent layers = stage.stage().layers;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    auto& own = own_heads_.emplace_back();
    auto& split = split_heads_.emplace_back();
    for (std::int64_t head = 0; head < layout.n_kv_heads(); ++head) {
      if (stage.is_home(layer, head)) own.push_back(head);
      if (stage.layer(layer).homes[static_cast<std::size_t>(head)].shares.size() > 1) {
        split.push_back(head);
      }
    }
  }
}

void RingDecode::run(std::span<const DecodeRow> rows) {
  const std::int64_t d_model = compute_.spec().d_model;
  if (partial_memory_.data() == nullptr || partial_memory_.dim(0) < n_rows()) {
    partial_memory_ = DeviceTensor<float, 2>(compute_.stream(), {n_rows(), d_model});
  }
  partial_ = {partial_memory_.data(), {n_rows(), d_model}};
  const Extent layers = stage_.stage().layers;
  for (std::int64_t number = layers.begin; number < layers.end; ++number) run_layer(number, rows);
}

void RingDecode::run_layer(std::int64_t number, std::span<const DecodeRow> rows) {
  context_.set_layer(number);
  const LayerWeights& weights = compute_.weights().layer(number);
  const StepBuffers& b = compute_.buffers();
  rms_norm(compute_.stream(), {.x = b.hidden,
                               .weight = weights.attention_norm,
                               .eps = compute_.norm_eps(),
                               .out = b.normed});
  append(number, rows);
  project_queries(number, rows);
  attend(number, rows);
  finish_own(number);
  add_attention_output(number, weights);
  for (const DecodeRow& row : rows) {
    for (std::int64_t head = 0; head < layout_.n_kv_heads(); ++head) {
      row.cache->head(number, head).advance_to(row.position + 1);
    }
    row.cache->trim(number);
  }
  add_feed_forward(weights);
}

// New K and V of the heads whose newest block is at home here, for any of the rows.
void RingDecode::append(std::int64_t number, std::span<const DecodeRow> rows) {
  std::vector<std::int64_t> heads;
  for (const std::int64_t head :
       own_heads_[static_cast<std::size_t>(number - layout_.layers().begin)]) {
    const bool stores = std::any_of(rows.begin(), rows.end(), [&](const DecodeRow& row) {
      return stage_.home_of(number, head, row.position / stage_.block_size()) == stage_.position();
    });
    if (stores) heads.push_back(head);
  }
  for (const Extent& kv_heads : head_runs(heads)) append_run(number, rows, kv_heads);
}

void RingDecode::append_run(std::int64_t number, std::span<const DecodeRow> rows, Extent kv_heads) {
  const PhaseTimer timer(compute_.times(), Phase::kProject);
  const LayerWeights& w = compute_.weights().layer(number);
  const StepBuffers& b = compute_.buffers();
  const std::int64_t head_dim = compute_.spec().head_dim;
  const Extent columns = scaled(kv_heads, head_dim);
  const std::int64_t n = n_rows() * columns.size();
  const TensorView<float, 3> k(floats(k_memory_, n), {n_rows(), kv_heads.size(), head_dim});
  const TensorView<float, 3> v(floats(v_memory_, n), {n_rows(), kv_heads.size(), head_dim});
  const StreamRef stream = compute_.stream();
  linear(stream, {.x = b.normed,
                  .weight = w.k.outputs(columns),
                  .bias = part_of(w.k_bias, columns),
                  .out = as_matrix(k)});
  linear(stream, {.x = b.normed,
                  .weight = w.v.outputs(columns),
                  .bias = part_of(w.v_bias, columns),
                  .out = as_matrix(v)});
  if (compute_.spec().qk_norm) {
    rms_norm(
        stream,
        {.x = as_heads(k), .weight = w.k_norm, .eps = compute_.norm_eps(), .out = as_heads(k)});
  }
  rope(stream, {.x = k, .cos = b.cos, .sin = b.sin});

  std::vector<KvAppendItem> items;
  std::vector<std::byte*> blocks;
  blocks.reserve(rows.size() * static_cast<std::size_t>(kv_heads.size()));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto r = static_cast<std::int64_t>(row);
    const std::int64_t position = rows[row].position;
    for (std::int64_t head = kv_heads.begin; head < kv_heads.end; ++head) {
      const std::int64_t block = position / stage_.block_size();
      if (stage_.home_of(number, head, block) != stage_.position()) continue;
      const auto place = rows[row].cache->head(number, head).store({position, position + 1});
      if (!place) {
        throw Error(ErrorCode::kOutOfMemory,
                    fmt::format("no cache block is free for token {} of layer {}, KV head {}",
                                position, number, head));
      }
      blocks.push_back(place->block);
      const std::int64_t i = head - kv_heads.begin;
      items.push_back({.k = {k[r][i].data(), {1, head_dim}},
                       .v = {v[r][i].data(), {1, head_dim}},
                       .blocks = std::span(blocks).last(1),
                       .first_slot = place->first_slot});
    }
  }
  kv_append(stream, {.shape = layout_.shape(), .items = items});
}

void RingDecode::project_queries(std::int64_t number, std::span<const DecodeRow> rows) {
  const PhaseTimer timer(compute_.times(), Phase::kProject);
  const LayerWeights& w = compute_.weights().layer(number);
  const StepBuffers& b = compute_.buffers();
  const ModelSpec& spec = compute_.spec();
  const auto n = static_cast<std::int64_t>(rows.size());
  const auto& own = own_heads_[static_cast<std::size_t>(number - layout_.layers().begin)];
  const std::int64_t n_values =
      n * static_cast<std::int64_t>(own.size()) * spec.gqa_group() * spec.head_dim;
  float* q = floats(q_memory_, n_values);
  float* state = floats(state_memory_, n_values / spec.head_dim * (spec.head_dim + 2));
  runs_.clear();
  for (const Extent& kv_heads : head_runs(own)) {
    const Extent heads = scaled(kv_heads, spec.gqa_group());
    const Extent columns = scaled(heads, spec.head_dim);
    const std::int64_t n_states = n * heads.size();
    Run run{.kv_heads = kv_heads,
            .q = {q, {n, heads.size(), spec.head_dim}},
            .state = {{state, {n, heads.size(), spec.head_dim}},
                      {state + n_states * spec.head_dim, {n, heads.size()}},
                      {state + n_states * (spec.head_dim + 1), {n, heads.size()}}},
            .m = {},
            .l = {}};
    run.m = run.state.m;
    run.l = run.state.l;
    q += n * columns.size();
    state += n_states * (spec.head_dim + 2);
    const StreamRef stream = compute_.stream();
    linear(stream, {.x = b.normed,
                    .weight = w.q.outputs(columns),
                    .bias = part_of(w.q_bias, columns),
                    .out = as_matrix(run.q)});
    if (spec.qk_norm) {
      rms_norm(stream, {.x = as_heads(run.q),
                        .weight = w.q_norm,
                        .eps = compute_.norm_eps(),
                        .out = as_heads(run.q)});
    }
    rope(stream, {.x = run.q, .cos = b.cos, .sin = b.sin});
    clear(stream, run.state);
    runs_.push_back(run);
  }
}

void RingDecode::attend(std::int64_t number, std::span<const DecodeRow> rows) {
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  const std::int64_t group = compute_.spec().gqa_group();
  const StepBuffers& b = compute_.buffers();
  items_.clear();
  for (const Run& run : runs_) {
    for (std::int64_t head = run.kv_heads.begin; head < run.kv_heads.end; ++head) {
      const Extent q_heads =
          scaled({head - run.kv_heads.begin, head - run.kv_heads.begin + 1}, group);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const auto r = static_cast<std::int64_t>(row);
        items_.push_back({.q = run.q.slice(0, {r, r + 1}).slice(1, q_heads),
                          .q_positions = std::span<const std::int64_t>(b.positions).subspan(row, 1),
                          .blocks = rows[row].cache->head(number, head).blocks(),
                          .mask = layout_.policy(number, head).mask(),
                          .state = run.state.tokens({r, r + 1}).heads(q_heads)});
      }
    }
  }
  attention(compute_.stream(),
            {.shape = layout_.shape(), .sm_scale = compute_.sm_scale(), .items = items_});
}

// Makes every own state a part of the whole: o is divided by the sum over all ranks that share the
// head.
void RingDecode::finish_own(std::int64_t number) {
  const auto& split = split_heads_[static_cast<std::size_t>(number - layout_.layers().begin)];
  if (!split.empty()) gather_scales(split);
  const PhaseTimer timer(compute_.times(), Phase::kFinish);
  for (const Run& run : runs_) {
    finish_attention(compute_.stream(),
                     {.state = run.state, .sink_logits = {}, .out = run.state.o});
  }
}

// Body(run, row, head of the run, place in what one rank gives) for the own states of split heads.
template <typename Body>
void RingDecode::for_each_split(std::span<const std::int64_t> split, const Body& body) {
  const std::int64_t group = compute_.spec().gqa_group();
  const std::int64_t n_heads = static_cast<std::int64_t>(split.size()) * group;
  for (const Run& run : runs_) {
    for (std::size_t i = 0; i < split.size(); ++i) {
      if (!run.kv_heads.contains(split[i])) continue;
      for (std::int64_t row = 0; row < n_rows(); ++row) {
        for (std::int64_t g = 0; g < group; ++g) {
          const std::int64_t place = (row * n_heads + static_cast<std::int64_t>(i) * group + g) * 2;
          body(run, row, (split[i] - run.kv_heads.begin) * group + g, place);
        }
      }
    }
  }
}

// For heads with several homes: replaces each own l by the sum over all ranks, relative to the own
// m. What is gathered is [ranks][n_rows][split heads x gqa_group][m, l], in host memory; ranks
// without blocks of a head say (-inf, 0).
void RingDecode::gather_scales(std::span<const std::int64_t> split) {
  const std::int64_t n_heads =
      static_cast<std::int64_t>(split.size()) * compute_.spec().gqa_group();
  const auto n_mine = static_cast<std::size_t>(n_rows() * n_heads * 2);
  gathered_.resize(n_mine * static_cast<std::size_t>(stage_.n_ranks()));
  const std::span<float> mine =
      std::span(gathered_).subspan(static_cast<std::size_t>(stage_.position()) * n_mine, n_mine);
  for (std::size_t i = 0; i < n_mine; i += 2) {
    mine[i] = -std::numeric_limits<float>::infinity();
    mine[i + 1] = 0.0F;
  }
  const bool is_on_gpu = compute_.stream().device() != Device::kCpu;
  if (is_on_gpu) fetch_scales();
  for_each_split(split,
                 [&](const Run& run, std::int64_t row, std::int64_t head, std::int64_t place) {
                   mine[static_cast<std::size_t>(place)] = run.m[row][head];
                   mine[static_cast<std::size_t>(place) + 1] = run.l[row][head];
                 });
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board, -1);
    context_.comm.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(gathered_)));
  }
  if (is_on_gpu) {
    merge_others(split);
  } else {
    scale_by_others(split);
  }
}

// Brings m and l of the own states, which lie one after the other, to the host.
void RingDecode::fetch_scales() {
  std::int64_t n = 0;
  for (const Run& run : runs_) n += 2 * run.state.m.size();
  scales_.resize(static_cast<std::size_t>(n));
  std::vector<HostCopy> copies;
  float* next = scales_.data();
  for (Run& run : runs_) {
    const std::int64_t n_states = run.state.m.size();
    copies.push_back({{as_bytes(next), bytes_of(2 * n_states)}, as_bytes(run.state.m.data())});
    run.m = {next, run.state.m.shape()};
    run.l = {next + n_states, run.state.l.shape()};
    next += 2 * n_states;
  }
  if (!copies.empty()) copy_to_host(compute_.stream(), copies);
}

// On CPUs: in place.
void RingDecode::scale_by_others(std::span<const std::int64_t> split) {
  const std::int64_t n_mine = static_cast<std::int64_t>(gathered_.size()) / stage_.n_ranks();
  const float* all = gathered_.data();
  for_each_split(split,
                 [&](const Run& run, std::int64_t row, std::int64_t head, std::int64_t place) {
                   const SoftmaxStateView& state = run.state;
                   const float own_m = state.m[row][head];
                   if (std::isinf(own_m)) return;  // no keys here: o is zero
                   float max = own_m;
                   for (std::int64_t r = 0; r < stage_.n_ranks(); ++r) {
                     max = std::max(max, all[r * n_mine + place]);
                   }
                   float sum = 0.0F;
                   for (std::int64_t r = 0; r < stage_.n_ranks(); ++r) {
                     sum += all[r * n_mine + place + 1] * std::exp(all[r * n_mine + place] - max);
                   }
                   // o e^(own_m - max) / sum, by scaling o and giving finish_attention the sum.
                   const float scale = std::exp(own_m - max);
                   float* o = state.o[row][head].data();
                   for (std::int64_t d = 0; d < state.o.dim(2); ++d) o[d] *= scale;
                   state.m[row][head] = max;
                   state.l[row][head] = sum;
                 });
}

// On GPUs: what the other ranks have together is a state whose values are zero here; merging it
// does the same.
void RingDecode::merge_others(std::span<const std::int64_t> split) {
  const std::size_t n_mine = gathered_.size() / static_cast<std::size_t>(stage_.n_ranks());
  const auto me = static_cast<std::size_t>(stage_.position());
  for (const Run& run : runs_) {  // heads with one home have no others
    std::fill_n(run.m.data(), run.m.size(), -std::numeric_limits<float>::infinity());
    std::fill_n(run.l.data(), run.l.size(), 0.0F);
  }
  for_each_split(split,
                 [&](const Run& run, std::int64_t row, std::int64_t head, std::int64_t place) {
                   float max = -std::numeric_limits<float>::infinity();
                   const auto for_each_other = [&](const auto& body) {
                     for (std::size_t at = static_cast<std::size_t>(place), r = 0;
                          at < gathered_.size(); at += n_mine, ++r) {
                       if (r != me) body(gathered_[at], gathered_[at + 1]);
                     }
                   };
                   for_each_other([&](float m, float) { max = std::max(max, m); });
                   if (std::isinf(max)) return;
                   float sum = 0.0F;
                   for_each_other([&](float m, float l) { sum += l * std::exp(m - max); });
                   run.m[row][head] = max;
                   run.l[row][head] = sum;
                 });
  const StreamRef stream = compute_.stream();
  for (const Run& run : runs_) {
    const SoftmaxStateView& state = run.state;
    const std::int64_t n_states = state.m.size();
    float* o = floats(others_, state.o.size() + 2 * n_states);
    float* m = o + state.o.size();
    set_to_zero(stream, as_bytes(o), bytes_of(state.o.size()));
    copy_from_host(stream, as_bytes(m), {as_bytes(run.m.data()), bytes_of(2 * n_states)});
    merge(stream, state,
          {{o, state.o.shape()}, {m, state.m.shape()}, {m + n_states, state.l.shape()}});
  }
}

// hidden += bias + the sum of partial_ over the ring: the same bits on every rank.
void RingDecode::add_sum_over_ring(std::span<const float> bias) {
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board, -1);
    context_.comm.all_reduce_sum(
        std::span(partial_.data(), static_cast<std::size_t>(partial_.size())));
  }
  residual_add(compute_.stream(),
               {.hidden = compute_.buffers().hidden, .part = partial_, .bias = bias});
}

// Products with int8 weights quantise each KV head's outputs together, and parts of them cannot be
// quantised apart: adds up the parts of every head with several homes. Its first home goes on with
// the sum, the others with zeros.
void RingDecode::join_split_heads(std::int64_t number) {
  const auto& split = split_heads_[static_cast<std::size_t>(number - layout_.layers().begin)];
  if (split.empty()) return;
  const std::int64_t group = compute_.spec().gqa_group();
  const std::int64_t width = group * compute_.spec().head_dim;
  const std::int64_t n_row = static_cast<std::int64_t>(split.size()) * width;
  const StreamRef stream = compute_.stream();
  float* sums = floats(joined_, n_rows() * n_row + width);
  float* zeros = sums + n_rows() * n_row;  // one head's
  set_to_zero(stream, as_bytes(sums), bytes_of(n_rows() * n_row + width));
  // `give` says what becomes of a KV head's own outputs `o` and its place in the sums.
  const auto copy_each_own = [&](const auto& give) {
    copies_.clear();
    for (const Run& run : runs_) {
      for (std::size_t i = 0; i < split.size(); ++i) {
        if (!run.kv_heads.contains(split[i])) continue;
        float* o = run.state.o.data() + (split[i] - run.kv_heads.begin) * width;
        copies_.push_back(give(split[i], as_bytes(o), bytes_of(run.state.o.stride(0)),
                               as_bytes(sums + static_cast<std::int64_t>(i) * width)));
        copies_.back().row_bytes = bytes_of(width);
        copies_.back().n_rows = n_rows();
      }
    }
    copy_rows(stream, copies_);
  };
  copy_each_own([&](std::int64_t, std::byte* o, std::size_t o_stride, std::byte* sum) {
    return CopyRowsItem{
        .to = sum, .to_stride = bytes_of(n_row), .from = o, .from_stride = o_stride};
  });
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board, -1);
    context_.comm.all_reduce_sum(std::span(sums, static_cast<std::size_t>(n_rows() * n_row)));
  }
  copy_each_own([&](std::int64_t kv_head, std::byte* o, std::size_t o_stride, std::byte* sum) {
    const Home& home = stage_.layer(number).homes[static_cast<std::size_t>(kv_head)];
    const bool is_first = home.shares.front().rank.value == stage_.position();
    return CopyRowsItem{.to = o,
                        .to_stride = o_stride,
                        .from = is_first ? sum : as_bytes(zeros),
                        .from_stride = is_first ? bytes_of(n_row) : 0};
  });
}

void RingDecode::add_attention_output(std::int64_t number, const LayerWeights& weights) {
  if (weights.o.dtype == DType::kI8) join_split_heads(number);
  {
    const PhaseTimer timer(compute_.times(), Phase::kFinish);
    set_to_zero(compute_.stream(), as_bytes(partial_.data()), bytes_of(partial_.size()));
    for (const Run& run : runs_) {
      const std::int64_t per_head = compute_.spec().gqa_group() * compute_.spec().head_dim;
      linear(compute_.stream(), {.x = as_matrix(run.state.o),
                                 .weight = weights.o.inputs(scaled(run.kv_heads, per_head)),
                                 .bias = {},
                                 .out = partial_,
                                 .output = LinearOutput::kAccumulate});
    }
  }
  add_sum_over_ring(weights.o_bias);
}

void RingDecode::add_feed_forward(const LayerWeights& weights) {
  {
    const PhaseTimer timer(compute_.times(), Phase::kFeedForward);
    const StepBuffers& b = compute_.buffers();
    const StreamRef stream = compute_.stream();
    rms_norm(
        stream,
        {.x = b.hidden, .weight = weights.ffn_norm, .eps = compute_.norm_eps(), .out = b.normed});
    set_to_zero(compute_.stream(), as_bytes(partial_.data()), bytes_of(partial_.size()));
    const Extent columns = stage_.stage().ffn_slice[static_cast<std::size_t>(stage_.position())];
    if (!columns.empty()) {
      const std::int64_t n = n_rows() * columns.size();
      float* memory = floats(ffn_memory_, 2 * n);
      const TensorView<float, 2> gate(memory, {n_rows(), columns.size()});
      const TensorView<float, 2> up(memory + n, {n_rows(), columns.size()});
      linear(stream, {.x = b.normed,
                      .weight = weights.gate.outputs(columns),
                      .bias = part_of(weights.gate_bias, columns),
                      .out = gate});
      linear(stream, {.x = b.normed,
                      .weight = weights.up.outputs(columns),
                      .bias = part_of(weights.up_bias, columns),
                      .out = up});
      swiglu(stream, {.gate = gate, .up = up, .out = gate});
      linear(stream,
             {.x = gate, .weight = weights.down.inputs(columns), .bias = {}, .out = partial_});
    }
  }
  add_sum_over_ring(weights.down_bias);
}

}  // namespace longhaul
