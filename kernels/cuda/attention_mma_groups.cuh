// Part of attention_mma.cuh: products with codes that were quantised in groups (KIVI). A key's
// value in dim d is c s + m with s and m of its group of tokens and d, so for the keys of a group
//   q.k = sum over d of (q[d] s[d]) c[d] + sum over d of q[d] m[d]
// where the left side of the first sum is a row of queries again, and the second is one number for
// all keys of the group. A value's range belongs to its token and group of dims: there weights are
// multiplied by scales, group of dims by group of dims.
#pragma once
#include "kernels/cuda/attention_mma_compute.cuh"

namespace longhaul::cuda {
namespace {

constexpr int kGroupScores = static_cast<int>(kKvGroup) / 8;  // groups of 8 scores, or 8 outputs

// Scales or minima number 2 word and 2 word + 1.
struct RangePair {
  float low;
  float high;
};
__device__ __forceinline__ RangePair range_pair(const std::uint32_t* words, int word) {
  const std::uint32_t both = words[word];
  return {float_of_f16(static_cast<std::uint16_t>(both & 0xffffU)),
          float_of_f16(static_cast<std::uint16_t>(both >> 16U))};
}

// Of a thread's four words of queries in product `step`.
template <typename C>
__device__ __forceinline__ int queries_at(const Thread<C>& thread, int step) {
  return ((step * 8 + thread.g) * 4 + thread.t) * 4;
}

// Keeps the queries of the warp's rows in shared memory, words [kDimSteps, lanes, 4]: there are not
// registers enough for them beside scales. Warps of the same rows write the same.
template <typename C>
__device__ __forceinline__ void put_queries(const Thread<C>& thread, std::uint32_t* queries) {
#pragma unroll
  for (int step = 0; step < C::kDimSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) queries[queries_at(thread, step) + i] = thread.q[step][i];
  }
}

// The thread's `queries` [4] of product `step` times the scales of its dims; adds what the minima
// give to rows g and g + 8.
template <typename C>
__device__ __forceinline__ void scale_queries(const Thread<C>& thread, const std::uint32_t* queries,
                                              const std::uint32_t* scales,
                                              const std::uint32_t* minima, int step,
                                              std::uint32_t (&scaled)[4], float (&sums)[2]) {
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int word = value_of_lane(C::kType, step, thread.t, 2 * pair) / 2;
    const RangePair scale = range_pair(scales, word);
    const RangePair minimum = range_pair(minima, word);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t both = queries[2 * pair + half];
      const float low = __uint_as_float(both << 16U);
      const float high = __uint_as_float(both & 0xffff0000U);
      scaled[2 * pair + half] = bf16_pair(low * scale.low, high * scale.high);
      sums[half] += low * minimum.low + high * minimum.high;
    }
  }
}

// As compute_scores, with `queries` that put_queries wrote.
template <typename C>
__device__ __forceinline__ void compute_group_scores(const Thread<C>& thread,
                                                     const std::uint32_t* queries,
                                                     const std::uint32_t* stage,
                                                     float (&scores)[C::kScoreGroups][4]) {
#pragma unroll
  for (int first = 0; first < C::kScoreGroups; first += kGroupScores) {
    const int group = thread.first_key / static_cast<int>(kKvGroup) + first / kGroupScores;
    const std::uint32_t* scales = stage + C::kRangesAt + group * (C::kHeadDim / 2);
    const std::uint32_t* minima = scales + C::kRangeWords;
    float sums[2] = {0.0F, 0.0F};
#pragma unroll
    for (int n = first; n < first + kGroupScores; ++n)
      scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0F;
#pragma unroll
    for (int step = 0; step < C::kDimSteps; ++step) {
      std::uint32_t scaled[4];
      scale_queries<C>(thread, queries + queries_at(thread, step), scales, minima, step, scaled,
                       sums);
#pragma unroll
      for (int n = first; n < first + kGroupScores; ++n) {
        const int key = thread.first_key + key_of_score(C::kType, n, thread.g);
        std::uint32_t right[2];
        load_right<C::kType>(stage, C::kKStride, step, thread.t, key, right);
        mma_bf16(scores[n], scaled, right);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums[half] += shuffle_xor(sums[half], 1);
      sums[half] += shuffle_xor(sums[half], 2);
#pragma unroll
      for (int n = first; n < first + kGroupScores; ++n) {
        scores[n][2 * half] += sums[half];
        scores[n][2 * half + 1] += sums[half];
      }
    }
  }
}

// As weigh_codes and add_values.
template <typename C>
__device__ __forceinline__ void add_group_values(Thread<C>& thread, const std::uint32_t* stage,
                                                 const float (&weights)[C::kScoreGroups][4]) {
  const std::uint32_t* words = stage + C::kVAt + thread.first_key / C::kLanes * C::kVStride;
#pragma unroll
  for (int group = 0; group < C::kDimGroups; ++group) {
    const std::uint32_t* scales =
        stage + C::kRangesAt + 2 * C::kRangeWords + group * (C::kKeys / 2);
    const std::uint32_t* minima = scales + C::kRangeWords;
#pragma unroll
    for (int step = 0; step < C::kKeySteps; ++step) {  // two of them share words: in registers
      const int first_key = thread.first_key + value_of_lane(C::kType, step, thread.t, 0);
      std::uint32_t left[4];
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const RangePair scale = range_pair(scales, first_key / 2 + pair);
        const RangePair minimum = range_pair(minima, first_key / 2 + pair);
        const float(&of)[4] = weights[2 * step + pair];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float low = of[2 * half];
          const float high = of[2 * half + 1];
          thread.minimum[group][half] += low * minimum.low + high * minimum.high;
          left[2 * pair + half] = bf16_pair(low * scale.low, high * scale.high);
        }
      }
#pragma unroll
      for (int n = group * kGroupScores; n < (group + 1) * kGroupScores; ++n) {
        std::uint32_t right[2];
        load_right<C::kType>(words, C::kVStride, step, thread.t, 8 * n + thread.g, right);
        mma_bf16(thread.o[n], left, right);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::cuda
