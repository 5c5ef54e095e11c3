#include "worker/ring/ring_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "kernels/linear.h"
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

float* floats(ByteBuffer& memory, std::int64_t n) {
  return reinterpret_cast<float*>(memory.reserve(static_cast<std::size_t>(n) * sizeof(float)));
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
    partial_memory_ = Tensor<float, 2>({n_rows(), d_model});
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
                      {state + n_states * (spec.head_dim + 1), {n, heads.size()}}}};
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
  if (!split.empty()) gather_scales(number, split);
  const PhaseTimer timer(compute_.times(), Phase::kFinish);
  for (const Run& run : runs_) {
    finish_attention(compute_.stream(),
                     {.state = run.state, .sink_logits = {}, .out = run.state.o});
  }
}

// For heads with several homes: replaces each own l by the sum over all ranks, relative to the own
// m. What is gathered is [ranks][n_rows][split heads x gqa_group][m, l]; ranks without blocks of a
// head say (-inf, 0).
void RingDecode::gather_scales(std::int64_t /*number*/, std::span<const std::int64_t> split) {
  const std::int64_t group = compute_.spec().gqa_group();
  const std::int64_t n_heads = static_cast<std::int64_t>(split.size()) * group;
  const std::int64_t n_mine = n_rows() * n_heads * 2;
  float* all = floats(gathered_, n_mine * stage_.n_ranks());
  float* mine = all + stage_.position() * n_mine;
  const auto for_each_own = [&](const auto& body) {  // body(state, row, head of it, place in mine)
    for (const Run& run : runs_) {
      for (std::size_t i = 0; i < split.size(); ++i) {
        if (!run.kv_heads.contains(split[i])) continue;
        for (std::int64_t row = 0; row < n_rows(); ++row) {
          for (std::int64_t g = 0; g < group; ++g) {
            const std::int64_t place =
                (row * n_heads + static_cast<std::int64_t>(i) * group + g) * 2;
            body(run.state, row, (split[i] - run.kv_heads.begin) * group + g, place);
          }
        }
      }
    }
  };
  for (std::int64_t i = 0; i < n_mine; i += 2) {
    mine[i] = -std::numeric_limits<float>::infinity();
    mine[i + 1] = 0.0F;
  }
  for_each_own(
      [&](const SoftmaxStateView& state, std::int64_t row, std::int64_t head, std::int64_t place) {
        mine[place] = state.m[row][head];
        mine[place + 1] = state.l[row][head];
      });
  const auto bytes = [](float* data, std::int64_t n) {
    return std::as_writable_bytes(std::span(data, static_cast<std::size_t>(n)));
  };
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board, -1);
    context_.comm.all_gather(bytes(mine, n_mine), bytes(all, n_mine * stage_.n_ranks()));
  }
  for_each_own(
      [&](const SoftmaxStateView& state, std::int64_t row, std::int64_t head, std::int64_t place) {
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

// hidden += bias + the sum of partial_ over the ring: the same bits on every rank.
void RingDecode::add_sum_over_ring(std::span<const float> bias) {
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board, -1);
    context_.comm.all_reduce_sum(
        std::span(partial_.data(), static_cast<std::size_t>(partial_.size())));
  }
  const TensorView<float, 2>& hidden = compute_.buffers().hidden;
  for (std::int64_t row = 0; row < n_rows(); ++row) {
    float* h = hidden[row].data();
    const float* p = partial_[row].data();
    for (std::int64_t i = 0; i < hidden.dim(1); ++i) {
      h[i] += p[i] + (bias.empty() ? 0.0F : bias[static_cast<std::size_t>(i)]);
    }
  }
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
  float* sums = floats(joined_, n_rows() * n_row);
  std::fill_n(sums, n_rows() * n_row, 0.0F);
  const auto for_each_own = [&](const auto& body) {  // body(KV head, its o of a row, place in sums)
    for (const Run& run : runs_) {
      for (std::size_t i = 0; i < split.size(); ++i) {
        if (!run.kv_heads.contains(split[i])) continue;
        for (std::int64_t row = 0; row < n_rows(); ++row) {
          float* o = run.state.o[row][(split[i] - run.kv_heads.begin) * group].data();
          body(split[i], o, sums + row * n_row + static_cast<std::int64_t>(i) * width);
        }
      }
    }
  };
  for_each_own([&](std::int64_t, const float* o, float* sum) { std::copy_n(o, width, sum); });
  {
    const PhaseTimer timer(compute_.times(), Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board, -1);
    context_.comm.all_reduce_sum(std::span(sums, static_cast<std::size_t>(n_rows() * n_row)));
  }
  for_each_own([&](std::int64_t kv_head, float* o, const float* sum) {
    const Home& home = stage_.layer(number).homes[static_cast<std::size_t>(kv_head)];
    if (home.shares.front().rank.value == stage_.position()) {
      std::copy_n(sum, width, o);
    } else {
      std::fill_n(o, width, 0.0F);
    }
  });
}

void RingDecode::add_attention_output(std::int64_t number, const LayerWeights& weights) {
  if (weights.o.dtype == DType::kI8) join_split_heads(number);
  {
    const PhaseTimer timer(compute_.times(), Phase::kFinish);
    std::fill_n(partial_.data(), partial_.size(), 0.0F);
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
    std::fill_n(partial_.data(), partial_.size(), 0.0F);
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
