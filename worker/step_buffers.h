// Memory for the activations of one step on the worker's device, reused by all steps and layers: it
// grows to the largest step and stays.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/device_tensor.h"
#include "kernels/softmax_state.h"
#include "kernels/tensor.h"
#include "model/model_spec.h"

namespace longhaul {

// How tensors that one product may give lie in memory: each by itself, or as columns of one matrix,
// so that each has rows that are as far apart as the matrix's.
enum class Side : std::uint8_t { kApart, kBySide };

class StepBuffers {
 public:
  // The feed-forward network runs in tiles of rows, so that its wide activations stay small (and in
  // the CPU's caches) in a long chunk.
  static constexpr std::int64_t kFfnTileRows = 512;

  StepBuffers(const ModelSpec& spec, StreamRef stream) : spec_(spec), stream_(stream) {}

  // Makes room for n_rows and sets every view to that many rows. Contents are lost.
  void set_rows(std::int64_t n_rows, Side heads = Side::kApart);
  // Narrows every view to these rows of it, until the next set_rows.
  void keep_rows(Extent rows);
  std::size_t bytes() const;  // of all memory that it holds

  std::span<std::int64_t> positions;  // [n_rows], host memory
  TensorView<float, 2> hidden;        // [n_rows, d_model], the residual stream
  TensorView<float, 2> normed;        // [n_rows, d_model]
  TensorView<float, 3> q;             // [n_rows, n_heads, head_dim]; k and v lie as `heads` says
  TensorView<float, 3> k;             // [n_rows, n_kv_heads, head_dim]
  TensorView<float, 3> v;             // [n_rows, n_kv_heads, head_dim]
  TensorView<float, 2> cos;           // [n_rows, head_dim / 2]
  TensorView<float, 2> sin;
  SoftmaxStateView state;  // [n_rows, n_heads(, head_dim)]

  // The memory of q, k and v, for so many of the heads that a layer has, lying so.
  struct Heads {
    TensorView<float, 3> q;  // [n_rows, n_heads, head_dim]
    TensorView<float, 3> k;  // [n_rows, n_kv_heads, head_dim]
    TensorView<float, 3> v;
  };
  Heads heads(std::int64_t n_heads, std::int64_t n_kv_heads, Side side) const;

  // Of the feed-forward network, for at most min(n_rows, kFfnTileRows) rows and d_ff columns.
  struct Ffn {
    TensorView<float, 2> gate;  // [n, n_columns]
    TensorView<float, 2> up;
  };
  Ffn ffn(std::int64_t n, std::int64_t n_columns, Side side) const;

 private:
  // A tensor whose first dimension grows.
  template <int kRank>
  TensorView<float, kRank> rows_of(DeviceTensor<float, kRank>& memory,
                                   std::array<std::int64_t, kRank> shape);
  ModelSpec spec_;
  StreamRef stream_;
  std::vector<std::int64_t> positions_memory_;
  // Of q, k and v together, and of gate and up.
  DeviceTensor<float, 2> hidden_memory_, normed_memory_, cos_memory_, sin_memory_, heads_memory_,
      ffn_memory_, m_memory_, l_memory_;
  DeviceTensor<float, 3> o_memory_;
};

// The same memory as a matrix of one row per token. Heads are side by side.
inline TensorView<float, 2> as_matrix(const TensorView<float, 3>& x) {
  return {x.data(), {x.dim(0), x.dim(1) * x.dim(2)}, {x.stride(0), 1}};
}
// The same memory, contiguous, with one row per head.
inline TensorView<float, 2> as_heads(const TensorView<float, 3>& x) {
  return {x.data(), {x.dim(0) * x.dim(1), x.dim(2)}};
}

}  // namespace longhaul
