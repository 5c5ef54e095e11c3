// Part of attention_mma.cuh: from a tile in shared memory to scores, weights and outputs in
// registers.
#pragma once
#include "kernels/cuda/attention_mma_load.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen_by.h"

namespace longhaul::cuda {
namespace {

// Codes below 128 in bytes `first` and first + 1 of a word -> two bf16, exactly: a byte beside 0x43
// is 128 more than it, in bf16.
__device__ __forceinline__ std::uint32_t bf16_of_small_codes(std::uint32_t codes, int first) {
  const std::uint32_t which = first == 0 ? 0x4140U : 0x4342U;
  return add_bf16_pairs(choose_bytes(codes, 0x43434343U, which), 0xc300c300U);  // -128, twice
}

// Any codes in these bytes: one in the low bits of 2^23 is a float, and integers below 256 need no
// more than bf16's bits.
__device__ __forceinline__ std::uint32_t bf16_of_codes(std::uint32_t codes, int first) {
  const std::uint32_t which = 0x7440U + static_cast<std::uint32_t>(first);
  const float a = __uint_as_float(choose_bytes(codes, 0x4b000000U, which)) - 8388608.0F;
  const float b = __uint_as_float(choose_bytes(codes, 0x4b000000U, which + 1)) - 8388608.0F;
  return choose_bytes(__float_as_uint(a), __float_as_uint(b), 0x7632U);
}

// The right side of a product: words of lane t in product `step`, at a column.
template <KvType kType>
__device__ __forceinline__ void load_right(const std::uint32_t* words, int stride, int step, int t,
                                           int column, std::uint32_t (&b)[2]) {
  const std::uint32_t* at = words + word_row_of_lane(kType, step, t) * stride + column;
  if constexpr (kType == KvType::kF32 || kType == KvType::kBf16) {
    b[0] = at[0];
    b[1] = at[4 * stride];
  } else {
    const std::uint32_t codes = *at;
    if constexpr (kType == KvType::kFp8) {
      b[0] = bf16_of_e4m3(codes, 0);
      b[1] = bf16_of_e4m3(codes, 2);
    } else if constexpr (kType != KvType::kInt8) {
      constexpr std::uint32_t kEachByte =
          0x01010101U * static_cast<std::uint32_t>(most_code(kType));
      const std::uint32_t four = codes >> shift_of_lane(kType, step, t) & kEachByte;
      b[0] = bf16_of_small_codes(four, 0);
      b[1] = bf16_of_small_codes(four, 2);
    } else {
      b[0] = bf16_of_codes(codes, 0);
      b[1] = bf16_of_codes(codes, 2);
    }
  }
}

// What a thread keeps of its rows g and g + 8 (index 0 and 1) of its warp's 16.
template <typename C>
struct Thread {
  int g;
  int t;
  int first_key;  // of its warp's keys in the tile
  std::uint32_t q[C::kDimSteps][4];
  float q_sum[2];
  std::int64_t position[2];
  float o[C::kOutGroups][4];
  float m[2];                       // largest score so far, before sm_scale
  float l[2];                       // of this thread's columns
  float minimum[C::kDimGroups][2];  // sum of weight x minimum of V, of this thread's columns
};

// Also writes which of the KV head's query heads each row belongs to, if `heads` [rows] is given.
template <typename C>
__device__ __forceinline__ void load_queries(const AttentionWork& work, const AttentionTask& task,
                                             int first_row, Thread<C>& thread,
                                             std::uint32_t* heads = nullptr) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + thread.g + 8 * half;
    const bool exists = row < task.n_rows;
    // Rows that do not exist are zeros that see what the last one sees; they are not stored.
    const RowPlace place = row_place(work, task, exists ? row : task.n_rows - 1);
    const AttentionItemRef& item = place.item;
    const float* q = item.q + place.token * item.q_token_stride + place.head * item.q_head_stride;
    thread.position[half] = work.positions[item.positions_at + place.token];
    if (heads != nullptr && thread.t == 0) heads[row] = static_cast<std::uint32_t>(place.head);
    float sum = 0.0F;
#pragma unroll
    for (int step = 0; step < C::kDimSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const float* from = q + value_of_lane(C::kType, step, thread.t, 2 * pair);
        const std::uint32_t both = exists ? bf16_pair(from[0], from[1]) : 0U;
        thread.q[step][2 * pair + half] = both;
        sum += __uint_as_float(both << 16U) + __uint_as_float(both & 0xffff0000U);
      }
    }
    sum += shuffle_xor(sum, 1);
    thread.q_sum[half] = sum + shuffle_xor(sum, 2);
    thread.m[half] = minus_infinity();
    thread.l[half] = 0.0F;
#pragma unroll
    for (int group = 0; group < C::kDimGroups; ++group) thread.minimum[group][half] = 0.0F;
  }
#pragma unroll
  for (int n = 0; n < C::kOutGroups; ++n) {
    thread.o[n][0] = thread.o[n][1] = thread.o[n][2] = thread.o[n][3] = 0.0F;
  }
}

// scores[n][2 half + e]: of row `half`, column 2t + e of group n.
template <typename C>
__device__ __forceinline__ void compute_scores(const Thread<C>& thread, const std::uint32_t* stage,
                                               float (&scores)[C::kScoreGroups][4]) {
#pragma unroll
  for (int n = 0; n < C::kScoreGroups; ++n) {
    scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0F;
    const int key = thread.first_key + key_of_score(C::kType, n, thread.g);
#pragma unroll
    for (int step = 0; step < C::kDimSteps; ++step) {
      std::uint32_t right[2];
      load_right<C::kType>(stage, C::kKStride, step, thread.t, key, right);
      mma_bf16(scores[n], thread.q[step], right);
    }
  }
}

template <typename C>
__device__ __forceinline__ float range_at(const std::uint32_t* stage, int which, int key) {
  const auto* halves =
      reinterpret_cast<const std::uint16_t*>(stage + C::kRangesAt + which * C::kRangeWords);
  return float_of_f16(halves[key]);
}

// What a row sees of a tile's keys: [0, sink) and [oldest, end), in numbers of the tile.
struct SeenKeys {
  int sink;
  int oldest;
  int end;
  __device__ __forceinline__ bool operator()(int key) const {
    const int is_old = static_cast<int>(key >= sink) & static_cast<int>(key < oldest);
    return (static_cast<int>(key < end) & ~is_old) != 0;  // without branches
  }
};
template <typename C>
__device__ __forceinline__ SeenKeys seen_keys(const TileInfo& info, std::int64_t position,
                                              const Rows& rows) {
  const auto number = [&](std::int64_t key, int most) {
    const std::int64_t at = key - info.first_position;
    return at < 0 ? 0 : at < most ? static_cast<int>(at) : most;
  };
  return {.sink = number(rows.sink, C::kKeys),
          .oldest = number(position - rows.recent + 1, C::kKeys),
          .end = number(position + 1, info.n_keys)};
}

// Scales of codes, then the mask.
template <typename C>
__device__ __forceinline__ void finish_scores(const Thread<C>& thread, const std::uint32_t* stage,
                                              const TileInfo& info, const Rows& rows,
                                              float (&scores)[C::kScoreGroups][4]) {
  const std::int64_t last = info.first_position + C::kKeys - 1;
  const bool all_seen =
      info.n_keys == C::kKeys && last <= rows.first_position &&
      (last < rows.sink || rows.last_position - info.first_position < rows.recent);
  if (all_seen && !C::kTokenCodes) return;
  // Beside scales of codes there are no registers for limits of rows: these kernels would spill.
  const auto limits = [&](int half) {
    return C::kTokenCodes ? SeenKeys{} : seen_keys<C>(info, thread.position[half], rows);
  };
  const SeenKeys seen[2] = {limits(0), limits(1)};
  const auto sees = [&](int half, int key) {
    if constexpr (!C::kTokenCodes) return seen[half](key);
    return key < info.n_keys &&
           is_visible(info.first_position + key, thread.position[half], rows.sink, rows.recent);
  };
#pragma unroll
  for (int n = 0; n < C::kScoreGroups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = thread.first_key + key_of_score(C::kType, n, 2 * thread.t + e);
      const float scale = C::kTokenCodes ? range_at<C>(stage, 0, key) : 1.0F;
      const float minimum = C::kTokenCodes && kHasMinima<C> ? range_at<C>(stage, 1, key) : 0.0F;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = scores[n][2 * half + e];
        if constexpr (C::kTokenCodes && kHasMinima<C>)
          score = score * scale + minimum * thread.q_sum[half];
        else if constexpr (C::kTokenCodes)
          score *= scale;
        if (!all_seen && !sees(half, key)) score = minus_infinity();
      }
    }
  }
}

// Hides the slots of the tile that not all heads see from the rows of those that do not.
template <typename C>
__device__ __forceinline__ void hide_from_heads(const AttentionWork& work, const Thread<C>& thread,
                                                const TileInfo& info, const std::uint32_t* heads,
                                                float (&scores)[C::kScoreGroups][4]) {
  const KvBlockRef& block = work.blocks[info.block];
  if (block.seen_by == nullptr) return;
  const SeenBy* seen_by = block.seen_by + (info.first_position - block.first_position);
  static_assert(2 * C::kScoreGroups <= 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto head = static_cast<std::int64_t>(
        heads[static_cast<int>(threadIdx.x) / kWarp / C::kKeyWarps * 16 + thread.g + 8 * half]);
    // Gathered one by one: loads that the compiler brings forward would take the registers of sums.
    std::uint32_t hidden = 0;
#pragma unroll(C::kDecode ? 2 * C::kScoreGroups : 1)
    for (int i = 0; i < 2 * C::kScoreGroups; ++i) {
      const int key = thread.first_key + key_of_score(C::kType, i / 2, 2 * thread.t + i % 2);
      if (key < info.n_keys && !is_seen_by(seen_by, key, head)) hidden |= std::uint32_t{1} << i;
    }
#pragma unroll
    for (int i = 0; i < 2 * C::kScoreGroups; ++i) {
      if ((hidden >> i & 1U) != 0) scores[i / 2][2 * half + i % 2] = minus_infinity();
    }
  }
}

// Scores -> weights; sums of weights are scaled to the new maxima, by `factors` of rows g and
// g + 8, which outputs are then to be scaled by (scale_outputs).
template <typename C>
__device__ __forceinline__ void weigh_scores(Thread<C>& thread, float log2_scale,
                                             float (&scores)[C::kScoreGroups][4],
                                             float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float m = thread.m[half];
#pragma unroll
    for (int n = 0; n < C::kScoreGroups; ++n) {
      m = Larger()(scores[n][2 * half], m);
      m = Larger()(scores[n][2 * half + 1], m);
    }
    m = Larger()(shuffle_xor(m, 1), m);
    m = Larger()(shuffle_xor(m, 2), m);
    const float reference = m == minus_infinity() ? 0.0F : m * log2_scale;
    const float factor = exp2_approx(thread.m[half] * log2_scale - reference);
    factors[half] = factor;
    thread.m[half] = m;
    thread.l[half] *= factor;
#pragma unroll
    for (int group = 0; group < C::kDimGroups; ++group) thread.minimum[group][half] *= factor;
#pragma unroll
    for (int n = 0; n < C::kScoreGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[n][2 * half + e];
        score = exp2_approx(score * log2_scale - reference);
        thread.l[half] += score;
      }
    }
  }
}
template <typename C>
__device__ __forceinline__ void scale_outputs(Thread<C>& thread, const float (&factors)[2]) {
#pragma unroll
  for (int n = 0; n < C::kOutGroups; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) thread.o[n][i] *= factors[i / 2];
  }
}
template <typename C>
__device__ __forceinline__ void apply_softmax(Thread<C>& thread, float log2_scale,
                                              float (&scores)[C::kScoreGroups][4]) {
  float factors[2];
  weigh_scores<C>(thread, log2_scale, scores, factors);
  scale_outputs<C>(thread, factors);
}

template <typename C>
__device__ __forceinline__ void weigh_codes(Thread<C>& thread, const std::uint32_t* stage,
                                            float (&weights)[C::kScoreGroups][4]) {
#pragma unroll
  for (int n = 0; n < C::kScoreGroups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = thread.first_key + key_of_score(C::kType, n, 2 * thread.t + e);
      const float scale = range_at<C>(stage, 2, key);
      const float minimum = kHasMinima<C> ? range_at<C>(stage, 3, key) : 0.0F;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& weight = weights[n][2 * half + e];
        if constexpr (kHasMinima<C>) thread.minimum[0][half] += weight * minimum;
        weight *= scale;
      }
    }
  }
}

template <typename C>
__device__ __forceinline__ void add_values(Thread<C>& thread, const std::uint32_t* stage,
                                           const float (&weights)[C::kScoreGroups][4]) {
  const std::uint32_t* words = stage + C::kVAt + thread.first_key / C::kLanes * C::kVStride;
#pragma unroll
  for (int step = 0; step < C::kKeySteps; ++step) {
    const float(&low)[4] = weights[2 * step];
    const float(&high)[4] = weights[2 * step + 1];
    const std::uint32_t left[4] = {bf16_pair(low[0], low[1]), bf16_pair(low[2], low[3]),
                                   bf16_pair(high[0], high[1]), bf16_pair(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < C::kOutGroups; ++n) {
      std::uint32_t right[2];
      load_right<C::kType>(words, C::kVStride, step, thread.t, 8 * n + thread.g, right);
      mma_bf16(thread.o[n], left, right);
    }
  }
}

}  // namespace
}  // namespace longhaul::cuda
