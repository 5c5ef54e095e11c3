// The algebra of kernels/softmax_state.h on the GPU.
#pragma once
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/state_ref.h"
#include "kernels/softmax_state.h"

namespace longhaul::cuda {

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

// What o is multiplied by in the end; `sink` is a logit, or -inf where there is none.
__device__ __forceinline__ float finish_factor(float m, float l, float sink) {
  if (is_empty(m, l)) return 0.0F;
  const float reference = sink > m ? sink : m;
  const float own = weight_of(m, reference);
  return own / (l * own + weight_of(sink, reference));
}

}  // namespace longhaul::cuda
