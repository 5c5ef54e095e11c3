// Part of attention_mma.cuh: from registers to partial states, or into the items' states.
#pragma once
#include "kernels/cuda/attention_mma_compute.cuh"

namespace longhaul::cuda {
namespace {

// Sums over the four threads that share a row; m in the units of kernels/softmax_state.h.
template <typename C>
__device__ __forceinline__ void finish_rows(Thread<C>& thread, float sm_scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    thread.m[half] *= sm_scale;
    thread.l[half] += shuffle_xor(thread.l[half], 1);
    thread.l[half] += shuffle_xor(thread.l[half], 2);
    if constexpr (C::kCodes) {
      thread.minimum[half] += shuffle_xor(thread.minimum[half], 1);
      thread.minimum[half] += shuffle_xor(thread.minimum[half], 2);
#pragma unroll
      for (int n = 0; n < C::kOutGroups; ++n) {
        thread.o[n][2 * half] += thread.minimum[half];
        thread.o[n][2 * half + 1] += thread.minimum[half];
      }
    }
  }
}

// Where a row's state goes: a partial state, or the item's own, which it is merged into.
struct RowTarget {
  float* o;
  float* m;
  float* l;
  bool is_partial;
};
template <typename C>
__device__ __forceinline__ RowTarget target_of(const AttentionWork& work, const AttentionTask& task,
                                               const AttentionItemRef& item, int row) {
  if (task.partial_at >= 0) {
    float* o = work.partials + task.partial_at;
    float* m = o + C::kRows * C::kHeadDim + row;
    return {o + row * C::kHeadDim, m, m + C::kRows, true};
  }
  const std::int64_t token = (task.first_row + row) / item.gqa_group;
  const std::int64_t head = (task.first_row + row) % item.gqa_group;
  return {item.state.o_at(token, head), item.state.m_at(token, head), item.state.l_at(token, head),
          false};
}

// Prefill: each warp has its rows' whole state.
template <typename C>
__device__ __forceinline__ void store_rows(const AttentionWork& work, const AttentionTask& task,
                                           const AttentionItemRef& item, int first_row,
                                           const Thread<C>& thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + thread.g + 8 * half;
    const bool is_stored = row < task.n_rows;
    RowTarget to = {};
    Merged both = {thread.m[half], thread.l[half], 0.0F, 1.0F};
    bool changes = false;
    if (is_stored) {
      to = target_of<C>(work, task, item, row);
      changes = to.is_partial || !is_empty(thread.m[half], thread.l[half]);
      if (!to.is_partial) both = merged(*to.m, *to.l, thread.m[half], thread.l[half]);
    }
    sync_warp();  // m and l of the state are read before a lane writes them
    if (!changes) continue;
#pragma unroll
    for (int n = 0; n < C::kOutGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float* o = to.o + 8 * n + 2 * thread.t + e;
        const float own = thread.o[n][2 * half + e] * both.weight_b;
        *o = to.is_partial ? own : *o * both.weight_a + own;
      }
    }
    if (thread.t == 0) *to.m = both.m;
    if (thread.t == 1) *to.l = both.l;
  }
}

// Decode: merges the warps' states of the same rows by way of shared memory.
template <typename C>
__device__ __forceinline__ void merge_warps(const AttentionWork& work, const AttentionTask& task,
                                            const AttentionItemRef& item, const Thread<C>& thread) {
  auto* o = reinterpret_cast<float*>(shared_memory());  // [warps, 16, head_dim]
  float* m = o + C::kWarps * 16 * C::kHeadDim;          // [warps, 16]
  float* l = m + C::kWarps * 16;
  float* weights = l + C::kWarps * 16;
  float* old_weights = weights + C::kWarps * 16;  // [16]
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  __syncthreads();  // all warps are done with the last tile before its memory is reused
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = warp * 16 + thread.g + 8 * half;
#pragma unroll
    for (int n = 0; n < C::kOutGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        o[at * C::kHeadDim + 8 * n + 2 * thread.t + e] = thread.o[n][2 * half + e];
      }
    }
    if (thread.t == 0) m[at] = thread.m[half];
    if (thread.t == 1) l[at] = thread.l[half];
  }
  __syncthreads();  // all states are written before rows are merged
  if (static_cast<int>(threadIdx.x) < task.n_rows) {
    const int row = static_cast<int>(threadIdx.x);
    float m_all = minus_infinity();
    for (int w = 0; w < C::kWarps; ++w) m_all = Larger()(m[w * 16 + row], m_all);
    float l_all = 0.0F;
    for (int w = 0; w < C::kWarps; ++w) {
      weights[w * 16 + row] = weight_of(m[w * 16 + row], m_all);
      l_all += weights[w * 16 + row] * l[w * 16 + row];
    }
    const RowTarget to = target_of<C>(work, task, item, row);
    old_weights[row] = to.is_partial ? 0.0F : 1.0F;
    if (to.is_partial) {
      *to.m = m_all;
      *to.l = l_all;
    } else if (!is_empty(m_all, l_all)) {
      const Merged both = merged(*to.m, *to.l, m_all, l_all);
      for (int w = 0; w < C::kWarps; ++w) weights[w * 16 + row] *= both.weight_b;
      old_weights[row] = both.weight_a;
      *to.m = both.m;
      *to.l = both.l;
    }
  }
  __syncthreads();  // all weights are written before outputs are summed
  for (int i = static_cast<int>(threadIdx.x); i < task.n_rows * C::kHeadDim; i += C::kThreads) {
    const int row = i / C::kHeadDim;
    const RowTarget to = target_of<C>(work, task, item, row);
    float sum = 0.0F;
    for (int w = 0; w < C::kWarps; ++w) {
      sum += weights[w * 16 + row] * o[(w * 16 + row) * C::kHeadDim + i % C::kHeadDim];
    }
    float* at = to.o + i % C::kHeadDim;
    *at = to.is_partial ? sum : *at * old_weights[row] + sum;
  }
}

}  // namespace
}  // namespace longhaul::cuda
