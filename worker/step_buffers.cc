#include "worker/step_buffers.h"

#include <algorithm>
#include <array>

namespace longhaul {

template <int kRank>
TensorView<float, kRank> StepBuffers::rows_of(DeviceTensor<float, kRank>& memory,
                                              std::array<std::int64_t, kRank> shape) {
  if (memory.data() == nullptr || memory.dim(0) < shape[0]) {
    memory = {};  // frees first, so that the old and the new never coexist
    memory = DeviceTensor<float, kRank>(stream_, shape);
  }
  return {memory.data(), shape};
}

void StepBuffers::set_rows(std::int64_t n_rows, Side heads) {
  const ModelSpec& s = spec_;
  positions_memory_.resize(static_cast<std::size_t>(n_rows));
  positions = positions_memory_;
  hidden = rows_of<2>(hidden_memory_, {n_rows, s.d_model});
  normed = rows_of<2>(normed_memory_, {n_rows, s.d_model});
  rows_of<2>(heads_memory_, {n_rows, (s.n_heads + 2 * s.n_kv_heads) * s.head_dim});
  const Heads all = this->heads(s.n_heads, s.n_kv_heads, heads);
  q = all.q;
  k = all.k;
  v = all.v;
  cos = rows_of<2>(cos_memory_, {n_rows, s.head_dim / 2});
  sin = rows_of<2>(sin_memory_, {n_rows, s.head_dim / 2});
  state.o = rows_of<3>(o_memory_, {n_rows, s.n_heads, s.head_dim});
  state.m = rows_of<2>(m_memory_, {n_rows, s.n_heads});
  state.l = rows_of<2>(l_memory_, {n_rows, s.n_heads});
  rows_of<2>(ffn_memory_, {std::min(n_rows, kFfnTileRows), 2 * s.d_ff});
}

StepBuffers::Heads StepBuffers::heads(std::int64_t n_heads, std::int64_t n_kv_heads,
                                      Side side) const {
  const std::int64_t n_rows = hidden.dim(0);
  const std::int64_t n_all = n_heads + 2 * n_kv_heads;
  float* at = heads_memory_.data();
  const auto next = [&](std::int64_t n) {
    const std::int64_t width = n * spec_.head_dim;
    const bool is_apart = side == Side::kApart;
    const TensorView<float, 3> x(at, {n_rows, n, spec_.head_dim},
                                 {is_apart ? width : n_all * spec_.head_dim, spec_.head_dim, 1});
    at += is_apart ? n_rows * width : width;
    return x;
  };
  Heads heads;
  heads.q = next(n_heads);
  heads.k = next(n_kv_heads);
  heads.v = next(n_kv_heads);
  return heads;
}

StepBuffers::Ffn StepBuffers::ffn(std::int64_t n, std::int64_t n_columns, Side side) const {
  float* const at = ffn_memory_.data();
  if (side == Side::kApart) return {{at, {n, n_columns}}, {at + n * n_columns, {n, n_columns}}};
  const std::array<std::int64_t, 2> strides = {2 * n_columns, 1};
  return {{at, {n, n_columns}, strides}, {at + n_columns, {n, n_columns}, strides}};
}

void StepBuffers::keep_rows(Extent rows) {
  positions = positions.subspan(static_cast<std::size_t>(rows.begin),
                                static_cast<std::size_t>(rows.size()));
  for (TensorView<float, 2>* view : {&hidden, &normed, &cos, &sin}) *view = view->slice(0, rows);
  for (TensorView<float, 3>* view : {&q, &k, &v}) *view = view->slice(0, rows);
  state = state.tokens(rows);
}

std::size_t StepBuffers::bytes() const {
  std::size_t sum = 0;
  for (const auto* memory : {&hidden_memory_, &normed_memory_, &cos_memory_, &sin_memory_,
                             &heads_memory_, &ffn_memory_, &m_memory_, &l_memory_}) {
    sum += memory->bytes();
  }
  return sum + o_memory_.bytes();
}

}  // namespace longhaul
