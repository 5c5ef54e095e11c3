// The algebra of kernels/softmax_state.h on the GPU.
#pragma once
#include "kernels/cuda/instructions.cuh"
#include "kernels/softmax_state.h"

namespace longhaul::cuda {

// A state as kernels take it.
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

  __device__ float* o_at(std::int64_t token, std::int64_t head) const {
    return o + token * o_token_stride + head * o_head_stride;
  }
  __device__ float* m_at(std::int64_t token, std::int64_t head) const {
    return m + token * m_token_stride + head * m_head_stride;
  }
  __device__ float* l_at(std::int64_t token, std::int64_t head) const {
    return l + token * l_token_stride + head * l_head_stride;
  }
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

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000U); }

// No key seen. (-inf, NaN, ..) is not empty: all scores were NaN, and that must be seen.
__device__ __forceinline__ bool is_empty(float m, float l) {
  return m == minus_infinity() && l == 0.0F;
}

// e^(m - reference) as a weight; -inf weighs nothing, whatever the reference.
__device__ __forceinline__ float weight_of(float m, float reference) {
  return m == minus_infinity() ? 0.0F : expf(m - reference);
}

// How two states that are not both empty are merged.
struct Merged {
  float m;
  float l;
  float weight_a;  // of a's o
  float weight_b;
};
__device__ __forceinline__ Merged merged(float a_m, float a_l, float b_m, float b_l) {
  const float m = b_m > a_m ? b_m : a_m;
  const float a = weight_of(a_m, m);
  const float b = weight_of(b_m, m);
  return {m, a * a_l + b * b_l, a, b};
}

}  // namespace longhaul::cuda
