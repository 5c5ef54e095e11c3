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
    if constexpr (kHasMinima<C>) {
#pragma unroll
      for (int group = 0; group < C::kDimGroups; ++group) {
        float& minimum = thread.minimum[group][half];
        minimum += shuffle_xor(minimum, 1);
        minimum += shuffle_xor(minimum, 2);
      }
#pragma unroll
      for (int n = 0; n < C::kOutGroups; ++n) {
        const float minimum = thread.minimum[n * C::kDimGroups / C::kOutGroups][half];
        thread.o[n][2 * half] += minimum;
        thread.o[n][2 * half + 1] += minimum;
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
                                               int row) {
  const RowPlace place = row_place(work, task, row);
  if (place.partial_at >= 0) {
    float* o = work.partials + place.partial_at;
    float* m = o + C::kPartialRows * C::kHeadDim + place.row;
    return {o + place.row * C::kHeadDim, m, m + C::kPartialRows, true};
  }
  const StateRef& state = place.item.state;
  return {state.o_at(place.token, place.head), state.m_at(place.token, place.head),
          state.l_at(place.token, place.head), false};
}

// Prefill: each warp has its rows' whole state.
template <typename C>
__device__ __forceinline__ void store_rows(const AttentionWork& work, const AttentionTask& task,
                                           int first_row, const Thread<C>& thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + thread.g + 8 * half;
    const bool is_stored = row < task.n_rows;
    RowTarget to = {};
    Merged both = {thread.m[half], thread.l[half], 0.0F, 1.0F};
    bool changes = false;
    if (is_stored) {
      to = target_of<C>(work, task, row);
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

// Decode: where the warps of the same rows, kTileRows of a tile, leave their states to be merged,
// in shared memory.
template <typename C>
struct WarpStates {
  float* o = reinterpret_cast<float*>(shared_memory());      // [key warps, rows, head_dim]
  float* m = o + C::kKeyWarps * C::kTileRows * C::kHeadDim;  // [key warps, rows]
  float* l = m + C::kKeyWarps * C::kTileRows;
  float* weights = l + C::kKeyWarps * C::kTileRows;
  float* old_weights = weights + C::kKeyWarps * C::kTileRows;  // [rows]
};
// The same in words.
constexpr int words_of_states(int key_warps, int tile_rows, int head_dim) {
  return key_warps * tile_rows * (head_dim + 3) + tile_rows;
}

// Merges the states of the warps that have the rows of tile `tile`, which put_states(states) writes
// if this thread is of one of them.
template <typename C, typename PutState>
__device__ __forceinline__ void merge_warps(const AttentionWork& work, const AttentionTask& task,
                                            int tile, const PutState& put_state) {
  constexpr int kRows = C::kTileRows;
  const WarpStates<C> states;
  const auto [o, m, l, weights, old_weights] = states;
  const int left = task.n_rows - kRows * tile;
  const int n_rows = left < kRows ? left : kRows;
  // All warps are done with the last tile of keys, or of rows, before its memory is reused.
  __syncthreads();
  if (static_cast<int>(threadIdx.x) / kWarp / C::kKeyWarps == tile) put_state(states);
  __syncthreads();  // all states are written before rows are merged
  if (static_cast<int>(threadIdx.x) < n_rows) {
    const int row = static_cast<int>(threadIdx.x);
    float m_all = minus_infinity();
    for (int w = 0; w < C::kKeyWarps; ++w) m_all = Larger()(m[w * kRows + row], m_all);
    float l_all = 0.0F;
    for (int w = 0; w < C::kKeyWarps; ++w) {
      weights[w * kRows + row] = weight_of(m[w * kRows + row], m_all);
      l_all += weights[w * kRows + row] * l[w * kRows + row];
    }
    const RowTarget to = target_of<C>(work, task, kRows * tile + row);
    old_weights[row] = to.is_partial ? 0.0F : 1.0F;
    if (to.is_partial) {
      *to.m = m_all;
      *to.l = l_all;
    } else if (!is_empty(m_all, l_all)) {
      const Merged both = merged(*to.m, *to.l, m_all, l_all);
      for (int w = 0; w < C::kKeyWarps; ++w) weights[w * kRows + row] *= both.weight_b;
      old_weights[row] = both.weight_a;
      *to.m = both.m;
      *to.l = both.l;
    }
  }
  __syncthreads();  // all weights are written before outputs are summed
  for (int i = static_cast<int>(threadIdx.x); i < n_rows * C::kHeadDim; i += C::kThreads) {
    const int row = i / C::kHeadDim;
    const RowTarget to = target_of<C>(work, task, kRows * tile + row);
    float sum = 0.0F;
    for (int w = 0; w < C::kKeyWarps; ++w) {
      sum += weights[w * kRows + row] * o[(w * kRows + row) * C::kHeadDim + i % C::kHeadDim];
    }
    float* at = to.o + i % C::kHeadDim;
    *at = to.is_partial ? sum : *at * old_weights[row] + sum;
  }
}

// Writes a warp's rows there.
template <typename C>
__device__ __forceinline__ void put_rows(const Thread<C>& thread, const WarpStates<C>& to) {
  const int first = static_cast<int>(threadIdx.x) / kWarp % C::kKeyWarps * C::kTileRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = first + thread.g + 8 * half;
#pragma unroll
    for (int n = 0; n < C::kOutGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        to.o[at * C::kHeadDim + 8 * n + 2 * thread.t + e] = thread.o[n][2 * half + e];
      }
    }
    if (thread.t == 0) to.m[at] = thread.m[half];
    if (thread.t == 1) to.l[at] = thread.l[half];
  }
}

}  // namespace
}  // namespace longhaul::cuda
