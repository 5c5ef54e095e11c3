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

void StepBuffers::set_rows(std::int64_t n_rows) {
  const ModelSpec& s = spec_;
  positions_memory_.resize(static_cast<std::size_t>(n_rows));
  positions = positions_memory_;
  hidden = rows_of<2>(hidden_memory_, {n_rows, s.d_model});
  normed = rows_of<2>(normed_memory_, {n_rows, s.d_model});
  q = rows_of<3>(q_memory_, {n_rows, s.n_heads, s.head_dim});
  k = rows_of<3>(k_memory_, {n_rows, s.n_kv_heads, s.head_dim});
  v = rows_of<3>(v_memory_, {n_rows, s.n_kv_heads, s.head_dim});
  cos = rows_of<2>(cos_memory_, {n_rows, s.head_dim / 2});
  sin = rows_of<2>(sin_memory_, {n_rows, s.head_dim / 2});
  state.o = rows_of<3>(o_memory_, {n_rows, s.n_heads, s.head_dim});
  state.m = rows_of<2>(m_memory_, {n_rows, s.n_heads});
  state.l = rows_of<2>(l_memory_, {n_rows, s.n_heads});
  const std::int64_t n_tile_rows = std::min(n_rows, kFfnTileRows);
  gate = rows_of<2>(gate_memory_, {n_tile_rows, s.d_ff});
  up = rows_of<2>(up_memory_, {n_tile_rows, s.d_ff});
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
                             &gate_memory_, &up_memory_, &m_memory_, &l_memory_}) {
    sum += memory->bytes();
  }
  for (const auto* memory : {&q_memory_, &k_memory_, &v_memory_, &o_memory_}) {
    sum += memory->bytes();
  }
  return sum;
}

}  // namespace longhaul
