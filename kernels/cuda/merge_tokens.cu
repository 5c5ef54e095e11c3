// Merging of tokens: every new token is made by itself from the tokens of its window as they were
// projected, which are copied first, since the new ones take their place.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

// Of x [n, n_heads(, head_dim)]: where a row of a head begins.
struct RowHeads {
  const float* x;
  std::int64_t row_stride;
  std::int64_t head_stride;
  bool operator==(const RowHeads&) const = default;
  __device__ const float* at(std::int64_t row, std::int64_t head) const {
    return x + row * row_stride + head * head_stride;
  }
};
template <int kRank>
RowHeads row_heads(const TensorView<const float, kRank>& x) {
  return {x.data(), x.stride(0), x.stride(1)};
}

// As MergeTokensItem.
struct MergeItem {
  std::int64_t first_position;
  std::int64_t n_rows;
  std::int64_t n_before;
  RowHeads before_k;
  RowHeads before_v;
  RowHeads before_weights;
  RowHeads weights;
  RowHeads raw_k;  // copies of the new rows
  RowHeads raw_v;
  float* k;
  float* v;
  std::int64_t k_stride;  // from row to row
  std::int64_t v_stride;
};

struct MergeWork {
  const MergeItem* items;
  std::int64_t n_heads;
  std::int64_t head_dim;
  std::int64_t window;
  float init_val;
  bool operator==(const MergeWork&) const = default;
};

// Rows of an item's head as they were projected: those before the new ones have numbers below zero.
struct RawHead {
  const MergeItem& item;
  std::int64_t head;
  __device__ const float* k(std::int64_t row) const {
    return row >= 0 ? item.raw_k.at(row, head) : item.before_k.at(item.n_before + row, head);
  }
  __device__ const float* v(std::int64_t row) const {
    return row >= 0 ? item.raw_v.at(row, head) : item.before_v.at(item.n_before + row, head);
  }
  __device__ double weight(std::int64_t row) const {
    return static_cast<double>(row >= 0 ? *item.weights.at(row, head)
                                        : *item.before_weights.at(item.n_before + row, head));
  }
};

// merges_into_slot of kernels/merge_tokens.h.
__device__ __forceinline__ bool does_merge(float last_of_key, float init_val,
                                           std::int64_t position) {
  return position > 0 && last_of_key - init_val > 0.0F;
}

// grid.x is the row, grid.y the item and, within it, the head.
__global__ void merge_tokens_kernel(MergeWork work) {
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const MergeItem& item = work.items[blockIdx.y / work.n_heads];
  if (row >= item.n_rows) return;
  const RawHead raw = {item, blockIdx.y % work.n_heads};
  std::int64_t first = row;  // of the window of the row's slot
  while (row - first + 1 < work.window &&
         does_merge(raw.k(first)[work.head_dim - 1], work.init_val, item.first_position + first))
    --first;
  float* k = item.k + row * item.k_stride + raw.head * work.head_dim;
  float* v = item.v + row * item.v_stride + raw.head * work.head_dim;
  for (auto i = static_cast<std::int64_t>(threadIdx.x); first < row && i < 2 * work.head_dim;
       i += kChoiceThreads) {
    const bool is_k = i < work.head_dim;
    const std::int64_t d = is_k ? i : i - work.head_dim;
    double sum = 0.0;
    double of_weights = 0.0;
    for (std::int64_t from = first; from <= row; ++from) {
      const double weight = raw.weight(from);
      of_weights += weight;
      sum += weight * static_cast<double>((is_k ? raw.k(from) : raw.v(from))[d]);
    }
    (is_k ? k : v)[d] = static_cast<float>(sum / of_weights);
  }
  __syncthreads();  // all of the key is written before its last element goes
  if (threadIdx.x == 0) k[work.head_dim - 1] = 0.0F;
}

// A thread for each row and KV head.
__global__ void merge_decisions_kernel(RowHeads k, std::int64_t head_dim, float init_val,
                                       std::int64_t n_rows, std::int64_t n_heads,
                                       std::uint8_t* to) {  // [n_rows, n_heads]
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kChoiceThreads + threadIdx.x;
  if (i >= n_rows * n_heads) return;
  to[i] =
      does_merge(k.at(i / n_heads, i % n_heads)[head_dim - 1], init_val, /*position=*/1) ? 1 : 0;
}

struct WeighTokens {
  RowHeads q;
  float* weights;
  std::int64_t row_stride;
  std::int64_t head_stride;
  std::int64_t n_rows;
  std::int64_t n_kv_heads;
  std::int64_t group;
  std::int64_t head_dim;
  double init_val;
  bool operator==(const WeighTokens&) const = default;
};
// A thread for each row and KV head.
__global__ void merge_weights_kernel(WeighTokens w) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kChoiceThreads + threadIdx.x;
  if (i >= w.n_rows * w.n_kv_heads) return;
  const std::int64_t row = i / w.n_kv_heads;
  const std::int64_t kv_head = i % w.n_kv_heads;
  double sum = 0.0;
  for (std::int64_t g = 0; g < w.group; ++g)
    sum += static_cast<double>(w.q.at(row, kv_head * w.group + g)[w.head_dim - 1]);
  const double logit = sum / static_cast<double>(w.group) + w.init_val;
  w.weights[row * w.row_stride + kv_head * w.head_stride] =
      static_cast<float>(1.0 / (1.0 + exp(-logit)) + kMergeWeightEps);
}

// A thread for each row and head.
__global__ void zero_last_kernel(float* x, std::int64_t row_stride, std::int64_t head_stride,
                                 std::int64_t n_rows, std::int64_t n_heads, std::int64_t head_dim) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kChoiceThreads + threadIdx.x;
  if (i >= n_rows * n_heads) return;
  x[i / n_heads * row_stride + i % n_heads * head_stride + head_dim - 1] = 0.0F;
}

Grid threads_for(std::int64_t n) {
  return {.x = ceil_div(n, kChoiceThreads), .block = kChoiceThreads};
}

}  // namespace

void merge_decisions(Stream& stream, const MergeDecisionsArgs& args) {
  if (args.merges.empty()) return;
  const std::int64_t n_rows = args.k.dim(0);
  const std::int64_t n_heads = args.k.dim(1);
  auto* merges = reinterpret_cast<std::uint8_t*>(stream.scratch(args.merges.size()));
  launch(stream, "merge_decisions", merge_decisions_kernel, threads_for(n_rows * n_heads),
         row_heads(args.k), args.k.dim(2), static_cast<float>(args.init_val), n_rows, n_heads,
         merges);
  const std::byte* there =
      stream.download(reinterpret_cast<const std::byte*>(merges), args.merges.size());
  for (std::size_t i = 0; i < args.merges.size(); ++i) {
    const bool is_first = args.positions[i / static_cast<std::size_t>(n_heads)] == 0;
    args.merges[i] = is_first ? 0 : static_cast<std::uint8_t>(there[i]);
  }
}

void merge_weights(Stream& stream, const MergeWeightsArgs& args) {
  const std::int64_t n_kv_heads = args.weights.dim(1);
  const WeighTokens w = {.q = row_heads(args.q),
                         .weights = args.weights.data(),
                         .row_stride = args.weights.stride(0),
                         .head_stride = args.weights.stride(1),
                         .n_rows = args.q.dim(0),
                         .n_kv_heads = n_kv_heads,
                         .group = n_kv_heads == 0 ? 0 : args.q.dim(1) / n_kv_heads,
                         .head_dim = args.q.dim(2),
                         .init_val = args.init_val};
  launch(stream, "merge_weights", merge_weights_kernel, threads_for(w.n_rows * n_kv_heads), w);
}

void merge_tokens(Stream& stream, const MergeTokensArgs& args) {
  if (args.items.empty()) return;
  const std::int64_t n_heads = args.items.front().k.dim(1);
  const std::int64_t head_dim = args.items.front().k.dim(2);
  const std::int64_t row_size = n_heads * head_dim;
  std::int64_t n_rows = 0;
  for (const MergeTokensItem& item : args.items) n_rows += item.k.dim(0);
  auto* raw = reinterpret_cast<float*>(
      stream.scratch(static_cast<std::size_t>(2 * n_rows * row_size) * sizeof(float)));
  std::vector<CopyRowsItem> copies;
  const auto copied = [&](const TensorView<float, 3>& x) -> RowHeads {
    require(n_heads == 1 || x.stride(1) == head_dim, "merge_tokens: a token's heads lie apart");
    float* to = raw;
    raw += x.dim(0) * row_size;
    copies.push_back({.to = reinterpret_cast<std::byte*>(to),
                      .to_stride = static_cast<std::size_t>(row_size) * sizeof(float),
                      .from = reinterpret_cast<const std::byte*>(x.data()),
                      .from_stride = static_cast<std::size_t>(x.stride(0)) * sizeof(float),
                      .row_bytes = static_cast<std::size_t>(row_size) * sizeof(float),
                      .n_rows = x.dim(0)});
    return {to, row_size, head_dim};
  };
  std::vector<MergeItem> items;
  std::int64_t most_rows = 0;
  for (const MergeTokensItem& item : args.items) {
    most_rows = std::max(most_rows, item.k.dim(0));
    items.push_back({.first_position = item.first_position,
                     .n_rows = item.k.dim(0),
                     .n_before = item.before.n(),
                     .before_k = row_heads(item.before.k),
                     .before_v = row_heads(item.before.v),
                     .before_weights = row_heads(item.before.weights),
                     .weights = row_heads(item.weights),
                     .raw_k = copied(item.k),
                     .raw_v = copied(item.v),
                     .k = item.k.data(),
                     .v = item.v.data(),
                     .k_stride = item.k.stride(0),
                     .v_stride = item.v.stride(0)});
  }
  if (most_rows == 0) return;
  copy_rows(stream, copies);
  const MergeWork work = {
      .items = reinterpret_cast<const MergeItem*>(stream.upload(std::as_bytes(std::span(items)))),
      .n_heads = n_heads,
      .head_dim = head_dim,
      .window = args.window,
      .init_val = static_cast<float>(args.init_val)};
  launch(stream, "merge_tokens", merge_tokens_kernel,
         {.x = most_rows,
          .y = static_cast<std::int64_t>(items.size()) * n_heads,
          .block = kChoiceThreads},
         work);
}

void zero_last_elements(Stream& stream, const TensorView<float, 3>& x) {
  launch(stream, "zero_last_elements", zero_last_kernel, threads_for(x.dim(0) * x.dim(1)), x.data(),
         x.stride(0), x.stride(1), x.dim(0), x.dim(1), x.dim(2));
}

}  // namespace longhaul::cuda
