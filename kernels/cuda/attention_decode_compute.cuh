// Part of attention_decode.cuh: from a unit's words in registers to scores, weights and outputs.
#pragma once
#include "kernels/cuda/attention_decode_units.cuh"
#include "kernels/cuda/attention_mma_compute.cuh"

namespace longhaul::cuda {
namespace {

// A row's reference stays until a score is so much larger that weights would grow beyond 2^8.
constexpr float kMostExcess = 8.0F;

// What a thread keeps. Of each group of 8 rows it has rows 2t and 2t + 1 (index 0 and 1), of the
// keys of every unit 4g to 4g + 3, and of outputs dims that dim_of_output says.
template <typename C>
struct DecodeThread {
  int g;
  int t;
  std::uint32_t q[C::kRowGroups][C::kSteps][2];  // of row g
  float q_sum[C::kRowGroups][2];                 // of codes
  float o[C::kRowGroups][C::kSteps][4];          // [2 h + e]: dim_of_output(.., h), row 2t + e
  float reference[C::kRowGroups][2];             // of exponentials of 2; 0: no key seen
  float limit[C::kRowGroups][2];    // exponents beyond it change the reference; -inf: no key seen
  float l[C::kRowGroups][2];        // of this thread's keys
  float minimum[C::kRowGroups][2];  // sum of weight x minimum of V, of this thread's keys
};

// Codes in pairs as they come out of a word, and K's of 4 bits 128 too large: the sum over them is
// then too large by 128 times that of the queries.
constexpr float kExtra = 128.0F;
template <KvType kType>
__device__ __forceinline__ std::uint32_t code_pair(std::uint32_t word, int step, int pair) {
  if constexpr (kType == KvType::kInt4) {
    const int shift = shift_of_lane(kType, step, 0) + 8 * pair;
    return masked_and_set(word >> shift, 0x000f000fU, 0x43004300U);
  } else {
    return bf16_of_codes(word, 2 * pair);
  }
}

// The left side of a product from keys: 16 keys, of which this thread has 2 tile and 2 tile + 1 of
// its four as rows g and g + 8. `step` is of the chunk.
template <typename C>
__device__ __forceinline__ void left_of_keys(const Words4 (&words)[C::kChunkLoads], int step,
                                             int tile, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = 2 * tile + i % 2;
    const int pair = i / 2;
    if constexpr (C::kType == KvType::kBf16) {
      a[i] = words[2 * step + pair].at[key];
    } else {
      a[i] = code_pair<C::kType>(words[step * C::kChunkLoads / C::kChunkSteps].at[key], step, pair);
    }
  }
}

// From values: 16 dims, of which this thread has 2 tile and 2 tile + 1 of its four, and 16 keys.
template <typename C>
__device__ __forceinline__ void left_of_values(const Words4* words, int step, int tile,
                                               std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int dim = 2 * tile + i % 2;
    const int pair = i / 2;
    if constexpr (C::kType == KvType::kBf16) {
      a[i] = words[2 * step + pair].at[dim];
    } else if constexpr (C::kType == KvType::kInt8) {
      a[i] = code_pair<C::kType>(words[step].at[dim], step, pair);
    } else {
      a[i] = add_bf16_pairs(code_pair<C::kType>(words[0].at[dim], step, pair), 0xc300c300U);
    }
  }
}

// The dim of a thread's output: of product `tile` along dims, row g (h = 0) or g + 8 (h = 1).
LONGHAUL_HOST_DEVICE constexpr int dim_of_output(int tile, int g, int h) {
  return tile / 2 * 32 + 4 * g + tile % 2 * 2 + h;
}

// Adds a chunk of keys to scores [2 h + e] of products 0 and 1: key 4g + 2 product + h, row 2t + e.
template <typename C>
__device__ __forceinline__ void add_scores(const DecodeThread<C>& thread, int chunk,
                                           const Words4 (&words)[C::kChunkLoads],
                                           float (&scores)[C::kRowGroups][2][4]) {
#pragma unroll
  for (int step = 0; step < C::kChunkSteps; ++step) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      std::uint32_t a[4];
      left_of_keys<C>(words, step, tile, a);
#pragma unroll
      for (int group = 0; group < C::kRowGroups; ++group)
        mma_bf16(scores[group][tile], a, thread.q[group][chunk * C::kChunkSteps + step]);
    }
  }
}

// Number `key` of a thread's four.
__device__ __forceinline__ float range_of_key(const Words2& ranges, int key) {
  return float_of_f16(static_cast<std::uint16_t>(ranges.at[key / 2] >> key % 2 * 16));
}

template <typename C>
__device__ __forceinline__ void scale_scores(const DecodeThread<C>& thread, const KeyRanges& ranges,
                                             float (&scores)[C::kRowGroups][2][4]) {
#pragma unroll
  for (int key = 0; key < 4; ++key) {
    const float scale = range_of_key(ranges.k_scales, key);
    float minimum = range_of_key(ranges.k_minima, key);
    if constexpr (C::kType == KvType::kInt4) minimum -= kExtra * scale;
#pragma unroll
    for (int group = 0; group < C::kRowGroups; ++group) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[group][key / 2][key % 2 * 2 + e];
        score = score * scale + minimum * thread.q_sum[group][e];
      }
    }
  }
}

// What the kernel keeps of its rows in shared memory, for units that not all rows see.
struct RowFacts {
  const std::int64_t* positions;  // of this warp's rows
  const std::uint32_t* heads;     // which of the KV head's query heads each belongs to
};

// For units that are not whole.
template <typename C>
__device__ __forceinline__ void mask_scores(const DecodeThread<C>& thread, const TileInfo& info,
                                            const Rows& rows, const RowFacts& facts,
                                            float (&scores)[C::kRowGroups][2][4]) {
#pragma unroll
  for (int i = 0; i < 2 * C::kRowGroups; ++i) {
    const int group = i / 2;
    const SeenKeys seen =
        seen_keys<C>(info, facts.positions[8 * group + 2 * thread.t + i % 2], rows);
#pragma unroll
    for (int key = 0; key < 4; ++key) {
      if (!seen(4 * thread.g + key)) scores[group][key / 2][key % 2 * 2 + i % 2] = minus_infinity();
    }
  }
}

// Hides the slots that not all heads see from the rows of those that do not. `seen_by`: of the
// unit's slots.
template <typename C>
__device__ __forceinline__ void hide_from_heads(const DecodeThread<C>& thread, const TileInfo& info,
                                                const SeenBy* seen_by, const RowFacts& facts,
                                                float (&scores)[C::kRowGroups][2][4]) {
  // Gathered one by one: loads that the compiler brings forward would take the registers of sums.
  std::uint32_t hidden = 0;
#pragma unroll 1
  for (int n = 0; n < 8 * C::kRowGroups; ++n) {
    const int at = 4 * thread.g + n % 4;
    const int row = n / 8 * 8 + 2 * thread.t + n / 4 % 2;
    if (at < info.n_keys && !is_seen_by(seen_by, at, facts.heads[row]))
      hidden |= std::uint32_t{1} << n;
  }
#pragma unroll
  for (int n = 0; n < 8 * C::kRowGroups; ++n) {
    if ((hidden >> n & 1U) != 0) scores[n / 8][n % 4 / 2][n % 2 * 2 + n / 4 % 2] = minus_infinity();
  }
}

// Puts the reference of rows whose scores are beyond their limit at the largest score, and scales
// what was summed so far. Whether a row's reference changes depends on the row alone.
template <typename C>
__device__ __forceinline__ void change_references(const float (&largest)[C::kRowGroups][2],
                                                  DecodeThread<C>& thread) {
#pragma unroll
  for (int i = 0; i < 2 * C::kRowGroups; ++i) {
    const int group = i / 2;
    const int e = i % 2;
    float m = largest[group][e];
#pragma unroll
    for (int mask = 4; mask < kWarp; mask *= 2) m = Larger()(shuffle_xor(m, mask), m);
    if (!(m > thread.limit[group][e])) continue;  // the same in all lanes of the row
    const bool is_first = thread.limit[group][e] == minus_infinity();
    const float factor = is_first ? 1.0F : exp2_approx(thread.reference[group][e] - m);
    thread.reference[group][e] = m;
    thread.limit[group][e] = m + kMostExcess;
    thread.l[group][e] *= factor;
    thread.minimum[group][e] *= factor;
#pragma unroll
    for (int tile = 0; tile < C::kSteps; ++tile) {
      thread.o[group][tile][e] *= factor;
      thread.o[group][tile][2 + e] *= factor;
    }
  }
}

// Scores -> weights, 2^(score log2_scale - reference), of codes times the scales of V.
template <typename C>
__device__ __forceinline__ void weigh(float log2_scale, const KeyRanges& ranges,
                                      DecodeThread<C>& thread,
                                      float (&scores)[C::kRowGroups][2][4]) {
  float largest[C::kRowGroups][2];
  bool is_beyond = false;
#pragma unroll
  for (int i = 0; i < 2 * C::kRowGroups; ++i) {
    const float(&of)[2][4] = scores[i / 2];
    const int e = i % 2;
    const float m =
        Larger()(Larger()(of[0][e], of[0][2 + e]), Larger()(of[1][e], of[1][2 + e])) * log2_scale;
    largest[i / 2][e] = m;
    is_beyond = is_beyond || m > thread.limit[i / 2][e];
  }
  if (any_in_warp(is_beyond)) change_references<C>(largest, thread);
#pragma unroll
  for (int key = 0; key < 4; ++key) {
    const float scale = C::kCodes ? range_of_key(ranges.v_scales, key) : 1.0F;
    const float minimum = C::kCodes ? range_of_key(ranges.v_minima, key) : 0.0F;
#pragma unroll
    for (int i = 0; i < 2 * C::kRowGroups; ++i) {
      const int group = i / 2;
      const int e = i % 2;
      float& weight = scores[group][key / 2][key % 2 * 2 + e];
      weight = exp2_approx(weight * log2_scale - thread.reference[group][e]);
      thread.l[group][e] += weight;
      if constexpr (C::kCodes) {
        thread.minimum[group][e] += weight * minimum;
        weight *= scale;
      }
    }
  }
}

// Weights as the right side of products with values: of row g, keys 8t to 8t + 7 in the order in
// which pairs come out of words.
template <typename C>
__device__ __forceinline__ void turn_weights(const float (&weights)[2][4],
                                             std::uint32_t (&right)[2][2]) {
  std::uint32_t keys[4];  // lower half: key 8t + number, upper half: 8t + 4 + number
#pragma unroll
  for (int key = 0; key < 4; ++key) {
    const float* both = &weights[key / 2][key % 2 * 2];
    keys[key] = transposed_8x8(bf16_pair(both[0], both[1]));
  }
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const std::uint32_t a = keys[value_of_pair(C::kType, pair, 0)];
    const std::uint32_t b = keys[value_of_pair(C::kType, pair, 1)];
    right[0][pair] = choose_bytes(a, b, 0x5410U);
    right[1][pair] = choose_bytes(a, b, 0x7632U);
  }
}

// Adds a chunk of values, weighed.
template <typename C>
__device__ __forceinline__ void add_outputs(const std::uint32_t (&right)[C::kRowGroups][2][2],
                                            int chunk, const Words4 (&words)[C::kChunkLoads],
                                            DecodeThread<C>& thread) {
#pragma unroll
  for (int tile = 0; tile < C::kChunkSteps; ++tile) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      std::uint32_t a[4];
      left_of_values<C>(words + tile / 2 * C::kValueRows, step, tile % 2, a);
#pragma unroll
      for (int group = 0; group < C::kRowGroups; ++group)
        mma_bf16(thread.o[group][chunk * C::kChunkSteps + tile], a, right[group][step]);
    }
  }
}

// Reads the queries of a warp's rows, and what is kept of these in shared memory.
template <typename C>
__device__ __forceinline__ void load_decode_queries(const AttentionWork& work,
                                                    const AttentionTask& task, int first_row,
                                                    bool keeps, std::int64_t* positions,
                                                    std::uint32_t* heads, DecodeThread<C>& thread) {
#pragma unroll
  for (int group = 0; group < C::kRowGroups; ++group) {
    const int row = 8 * group + thread.g;
    const bool exists = first_row + row < task.n_rows;
    // Rows that do not exist are zeros that see what the last one sees; they are not stored.
    const RowPlace place = row_place(work, task, exists ? first_row + row : task.n_rows - 1);
    const AttentionItemRef& item = place.item;
    const float* q = item.q + place.token * item.q_token_stride + place.head * item.q_head_stride;
    if (keeps && thread.t == 0) {
      positions[row] = work.positions[item.positions_at + place.token];
      heads[row] = static_cast<std::uint32_t>(place.head);
    }
    float sum = 0.0F;
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const auto value = [&](int e) {
          const int number = value_of_pair(C::kType, pair, e);
          return q[value_of_lane(C::kType, step, thread.t, number)];
        };
        const std::uint32_t both = exists ? bf16_pair(value(0), value(1)) : 0U;
        thread.q[group][step][pair] = both;
        sum += __uint_as_float(both << 16U) + __uint_as_float(both & 0xffff0000U);
      }
    }
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      thread.q_sum[group][e] = shuffle_from(sum, 4 * (2 * thread.t + e));
      thread.reference[group][e] = 0.0F;
      thread.limit[group][e] = minus_infinity();
      thread.l[group][e] = 0.0F;
      thread.minimum[group][e] = 0.0F;
    }
#pragma unroll
    for (int tile = 0; tile < C::kSteps; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) thread.o[group][tile][i] = 0.0F;
    }
  }
}

}  // namespace
}  // namespace longhaul::cuda
