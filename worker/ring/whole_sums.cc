#include "worker/ring/whole_sums.h"

#include <algorithm>

#include "base/device/device_memory.h"
#include "worker/layer_slice.h"
#include "worker/ring/float_bytes.h"

namespace longhaul {
namespace {

// n columns in nearly equal runs, cut where products of few rows write whole cache lines.
ColumnsOfRing equal_columns(std::int64_t n, std::int64_t n_ranks) {
  constexpr std::int64_t kUnit = 16;
  const auto cut = [&](std::int64_t i) {
    return i == n_ranks ? n : i * n / n_ranks / kUnit * kUnit;
  };
  ColumnsOfRing columns;
  for (std::int64_t i = 0; i < n_ranks; ++i) columns.push_back({Extent{cut(i), cut(i + 1)}});
  return columns;
}

ColumnsOfRing ffn_columns(const Stage& stage) {
  ColumnsOfRing columns;
  for (const Extent& slice : stage.ffn_slice) columns.push_back({slice});
  return columns;
}

// Of a layer's head outputs: each KV head's group at its one home.
ColumnsOfRing head_columns(const LayerHomes& homes, std::int64_t n_ranks, std::int64_t group_dims) {
  ColumnsOfRing columns(static_cast<std::size_t>(n_ranks));
  for (const KvHeadId head : homes.homes.ids()) {
    columns[homes.homes[head].positions.front()].push_back(
        {head.value * group_dims, (head.value + 1) * group_dims});
  }
  return columns;
}

// Rows of one matrix into columns of another of as many rows.
CopyRowsItem copy_of(const TensorView<const float, 2>& from, const TensorView<float, 2>& to) {
  return {.to = as_bytes(to.data()),
          .to_stride = float_bytes(to.stride(0)),
          .from = as_bytes(from.data()),
          .from_stride = float_bytes(from.stride(0)),
          .row_bytes = float_bytes(from.dim(1)),
          .n_rows = from.dim(0)};
}

}  // namespace

WholeSums::WholeSums(LayerCompute& compute, const RingStage& stage, RingContext& context)
    : compute_(compute),
      stage_(stage),
      gather_(context),
      outputs_(equal_columns(compute.spec().d_model, stage.n_ranks())),
      ffn_(ffn_columns(stage.stage())) {
  const ModelSpec& spec = compute.spec();
  for (const LayerId layer : stage.layer_ids()) {
    heads_.push_back(
        head_columns(stage.layer(layer), stage.n_ranks(), spec.gqa_group() * spec.head_dim));
  }
}

// [rows of the step, n_columns] in memory that grows.
TensorView<float, 2> WholeSums::matrix(DeviceTensor<float, 2>& memory, std::int64_t n_columns) {
  const std::int64_t n_rows = compute_.buffers().hidden.dim(0);
  if (memory.data() == nullptr || memory.dim(0) * memory.dim(1) < n_rows * n_columns) {
    submit_noted(compute_.stream());  // it may use the old memory
    memory = {};                      // frees first
    memory =
        DeviceTensor<float, 2>(compute_.stream(), {n_rows, std::max<std::int64_t>(1, n_columns)});
  }
  return {memory.data(), {n_rows, n_columns}};
}

// hidden += product, of which this rank computes its outputs.
template <typename Product>
void WholeSums::add(LayerId layer, const Product& product) {
  const Extent columns = outputs_[stage_.position()].front();
  const TensorView<float, 2> hidden = compute_.buffers().hidden;
  const TensorView<float, 2> own = matrix(own_outputs_, columns.size());
  if (!columns.empty()) {
    const CopyRowsItem before = copy_of(hidden.slice(1, columns), own);
    copy_rows(compute_.stream(), {&before, 1});
    product(outputs_of(compute_.weights().layer(layer), columns),
            LayerCompute::Output{own, LinearOutput::kAccumulate});
  }
  gather_.run(outputs_, own, hidden);
}

void WholeSums::add_attention_output(LayerId layer, std::span<const QueryRows> own) {
  const ModelSpec& spec = compute_.spec();
  std::int64_t n_own = 0;
  for (const QueryRows& run : own) n_own += run.q.dim(1) * spec.head_dim;
  const TensorView<float, 2> mine = matrix(own_heads_, n_own);
  copies_.clear();
  std::int64_t at = 0;
  for (const QueryRows& run : own) {
    const TensorView<float, 2> outputs = as_matrix(run.state.o);
    copies_.push_back(copy_of(outputs, mine.slice(1, {at, at + outputs.dim(1)})));
    at += outputs.dim(1);
  }
  copy_rows(compute_.stream(), copies_);
  const TensorView<float, 2> all = matrix(all_heads_, spec.n_heads * spec.head_dim);
  gather_.run(heads_[static_cast<std::size_t>(layer.value - stage_.stage().layers.begin)], mine,
              all);
  const TensorView<float, 3> o(all.data(), {all.dim(0), spec.n_heads, spec.head_dim});
  add(layer, [&](const LayerWeights& part, const LayerCompute::Output& to) {
    compute_.project_outputs(part, o, to);
  });
}

void WholeSums::add_feed_forward(LayerId layer) {
  const ModelSpec& spec = compute_.spec();
  const LayerWeights& weights = compute_.weights().layer(layer);
  const Extent columns = ffn_[stage_.position()].front();
  const TensorView<float, 2> mine = matrix(own_activations_, columns.size());
  if (!columns.empty()) {
    const LayerWeights part = ffn_columns_of(weights, columns);
    for (std::int64_t begin = 0; begin < mine.dim(0); begin += StepBuffers::kFfnTileRows) {
      const Extent rows{begin, std::min(mine.dim(0), begin + StepBuffers::kFfnTileRows)};
      const CopyRowsItem copy = copy_of(compute_.activate(part, rows), mine.slice(0, rows));
      copy_rows(compute_.stream(), {&copy, 1});
    }
  }
  const TensorView<float, 2> all = matrix(all_activations_, spec.d_ff);
  gather_.run(ffn_, mine, all);
  add(layer, [&](const LayerWeights& part, const LayerCompute::Output& to) {
    compute_.project_activations(part, all, to);
  });
}

std::size_t WholeSums::buffer_bytes() const {
  return gather_.buffer_bytes() + own_heads_.bytes() + all_heads_.bytes() +
         own_activations_.bytes() + all_activations_.bytes() + own_outputs_.bytes();
}

}  // namespace longhaul
