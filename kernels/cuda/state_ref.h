// A softmax state (kernels/softmax_state.h) as kernels take it.
#pragma once
#include <cstdint>

#include "kernels/cuda/kv_words.cuh"
#include "kernels/softmax_state.h"

namespace longhaul::cuda {

struct StateRef {
  float* o;  // [n_tokens, n_heads, head_dim]
  std::int64_t o_token_stride;
  std::int64_t o_head_stride;
  float* m;  // [n_tokens, n_heads]
  std::int64_t m_token_stride;
  std::int64_t m_head_stride;
  float* l;
  std::int64_t l_token_stride;
  std::int64_t l_head_stride;

  LONGHAUL_HOST_DEVICE float* o_at(std::int64_t token, std::int64_t head) const {
    return o + token * o_token_stride + head * o_head_stride;
  }
  LONGHAUL_HOST_DEVICE float* m_at(std::int64_t token, std::int64_t head) const {
    return m + token * m_token_stride + head * m_head_stride;
  }
  LONGHAUL_HOST_DEVICE float* l_at(std::int64_t token, std::int64_t head) const {
    return l + token * l_token_stride + head * l_head_stride;
  }
  bool operator==(const StateRef&) const = default;
};

inline StateRef state_ref(const SoftmaxStateView& state) {
  return {.o = state.o.data(),
          .o_token_stride = state.o.stride(0),
          .o_head_stride = state.o.stride(1),
          .m = state.m.data(),
          .m_token_stride = state.m.stride(0),
          .m_head_stride = state.m.stride(1),
          .l = state.l.data(),
          .l_token_stride = state.l.stride(0),
          .l_head_stride = state.l.stride(1)};
}

}  // namespace longhaul::cuda
