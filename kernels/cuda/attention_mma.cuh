// Attention on bf16 tensor cores (compute capability 8.0 and up), with an online softmax, over
// paged blocks of bf16, int8 or int4, giving partial states. One kernel for two purposes:
//
//   prefill   4 warps with 16 rows each share every tile of 64 keys
//   decode    16 rows; 4 warps take a quarter of each tile's keys each, and merge at the end
//
// Codes are multiplied as they are, for bf16 holds integers up to 256 exactly: scales and minima
// are applied to whole scores and outputs, q.(c s + m) = s (q.c) + m sum(q). Rows of the tile are
// read by cp.async, kStages - 1 tiles ahead. Queries and weights are rounded to bf16; sums are
// float32.
//
// Included by one .cu for each cache type.
#pragma once
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {
namespace {

template <KvType kCacheType, int kDim, TilePurpose kPurpose>
struct Config {
  static constexpr KvType kType = kCacheType;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kCodes = holds_codes(kType);
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kKeyWarps = kPurpose == TilePurpose::kDecode ? kWarps : 1;
  static constexpr int kRowWarps = kWarps / kKeyWarps;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kWarpKeys = kPurpose == TilePurpose::kDecode ? values_of_step(kType)
                                   : kHeadDim > 128                 ? 32
                                                                    : 64;
  static constexpr int kKeys = kWarpKeys * kKeyWarps;  // of a tile
  // Tiles of codes are small, and decode has little to do for each.
  static constexpr int kStages = kPurpose == TilePurpose::kDecode && kCodes ? 3 : 2;

  static constexpr int kLanes = lanes_of(kType);
  static constexpr int kDimSteps = kHeadDim / 16;
  static constexpr int kKeySteps = kWarpKeys / 16;
  static constexpr int kScoreGroups = kWarpKeys / 8;
  static constexpr int kOutGroups = kHeadDim / 8;

  // Rows of words in shared memory. 8 more words: rows t = 0 to 3 then lie in different banks.
  static constexpr int kKStride = kKeys + 8;
  static constexpr int kKRows = kHeadDim / kLanes;
  static constexpr int kVStride = kHeadDim + 8;
  static constexpr int kVRows = kKeys / kLanes;
  static constexpr int kRangeWords = kCodes ? kKeys / 2 : 0;  // scales or minima of K or V
  static constexpr int kVAt = kKRows * kKStride;              // in words, from the stage's begin
  static constexpr int kRangesAt = kVAt + kVRows * kVStride;  // K's scales and minima, then V's
  static constexpr int kInfoAt = kRangesAt + 4 * kRangeWords;
  static constexpr int kStageWords = kInfoAt + 4;
  // For the merge at the end: o [warps, 16, head_dim]; m, l, weights [warps, 16]; weights [16].
  static constexpr int kMergeWords = kKeyWarps > 1 ? kWarps * 16 * (kHeadDim + 3) + 16 : 0;
  static constexpr int kWords =
      kStages * kStageWords > kMergeWords ? kStages* kStageWords : kMergeWords;

  static_assert(kHeadDim % values_of_step(kType) == 0);
  static_assert(kWarpKeys % values_of_step(kType) == 0);
  static_assert(kKStride % 32 == 8 && (kVStride % 32 == 8 || kVStride % 32 == 24));
  static_assert(kStageWords % 4 == 0 && kVAt % 4 == 0 && kRangesAt % 4 == 0, "16-byte copies");
};

// Keys of one block that a tile takes: the next kKeys slots, of which n_keys are tokens that may be
// seen. Lives in shared memory beside the tile.
struct TileInfo {
  std::int64_t first_position;
  std::int32_t n_keys;  // 0: there is no tile any more
  std::int32_t unused;
};
static_assert(sizeof(TileInfo) == 16);

// Walks over the tiles of a task; all threads walk alike.
struct Walk {
  const KvBlockRef* blocks;
  std::int32_t n_blocks;
  std::int32_t next_block = 0;
  KvBlockRef block = {};
  std::int64_t slot = 0;
  std::int64_t end = 0;
};

// The queries of a tile: what decides which keys are needed.
struct Rows {
  std::int64_t first_position;
  std::int64_t last_position;
  std::int64_t sink;
  std::int64_t recent;
};

// Puts the walk on the next tile's block and slot. False at the end.
__device__ __forceinline__ bool advance(Walk& walk, const Rows& rows) {
  while (walk.slot >= walk.end) {
    if (walk.next_block == walk.n_blocks) return false;
    walk.block = walk.blocks[walk.next_block++];
    const Slots slots =
        visible_slots(walk.block, rows.first_position, rows.last_position, rows.sink, rows.recent);
    walk.slot = slots.begin / 16 * 16;  // whole 16-byte copies, and whole words of V
    walk.end = slots.end;
  }
  return true;
}

// Queues copies of n_rows rows of words; words [0, n_words) of each exist, the others become zero.
__device__ __forceinline__ void copy_rows(std::uint32_t* to, int to_stride,
                                          const std::uint32_t* from, std::int64_t from_stride,
                                          int n_rows, int width, int n_words, int n_threads) {
  const int chunks = width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < n_rows * chunks; i += n_threads) {
    const int row = i / chunks;
    const int word = i % chunks * 4;
    const bool exists = word < n_words;
    copy_async_16(to + row * to_stride + word, exists ? from + row * from_stride + word : from,
                  exists);
  }
}

// Queues the copies of the walk's next tile into a stage, or marks the end there.
template <typename C>
__device__ __forceinline__ void load_tile(const AttentionWork& work, const Rows& rows, Walk& walk,
                                          std::uint32_t* stage) {
  TileInfo info = {0, 0, 0};
  if (advance(walk, rows)) {
    const std::int64_t left = walk.end - walk.slot;
    info.first_position = walk.block.first_position + walk.slot;
    info.n_keys = static_cast<std::int32_t>(left < C::kKeys ? left : C::kKeys);
    // Whole units of 16 slots: the block has them, and those without a token are zero.
    const int n_slots = (info.n_keys + 15) / 16 * 16;
    const auto* k = reinterpret_cast<const std::uint32_t*>(walk.block.data + work.k.at);
    copy_rows(stage, C::kKStride, k + walk.slot, work.block_size, C::kKRows, C::kKeys, n_slots,
              C::kThreads);
    const auto* v = reinterpret_cast<const std::uint32_t*>(walk.block.data + work.v.at);
    const int n_v_rows = n_slots / C::kLanes;
    copy_rows(stage + C::kVAt, C::kVStride, v + walk.slot / C::kLanes * C::kHeadDim, C::kHeadDim,
              n_v_rows, C::kHeadDim, C::kHeadDim, C::kThreads);
    copy_rows(stage + C::kVAt + n_v_rows * C::kVStride, C::kVStride, v, 0, C::kVRows - n_v_rows,
              C::kHeadDim, 0, C::kThreads);
    if constexpr (C::kCodes) {
      const std::int64_t ranges[] = {work.k.scales_at, work.k.minima_at, work.v.scales_at,
                                     work.v.minima_at};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto* from = reinterpret_cast<const std::uint32_t*>(walk.block.data + ranges[i]);
        copy_rows(stage + C::kRangesAt + i * C::kRangeWords, 0, from + walk.slot / 2, 0, 1,
                  C::kRangeWords, n_slots / 2, C::kThreads);
      }
    }
    walk.slot += C::kKeys;
  }
  if (threadIdx.x == 0) *reinterpret_cast<TileInfo*>(stage + C::kInfoAt) = info;
  commit_copies();
}

// Four codes in the bytes of a word -> two registers of bf16, exactly: a byte in the low bits of
// 2^23 is a float, and integers below 256 need no more than bf16's bits.
__device__ __forceinline__ std::uint32_t bf16_of_codes(std::uint32_t low, std::uint32_t high) {
  const float a = __uint_as_float(0x4b000000U | low) - 8388608.0F;
  const float b = __uint_as_float(0x4b000000U | high) - 8388608.0F;
  return __float_as_uint(a) >> 16U | (__float_as_uint(b) & 0xffff0000U);
}

// The right side of a product: words of lane t in product `step`, at a column.
template <KvType kType>
__device__ __forceinline__ void load_right(const std::uint32_t* words, int stride, int step, int t,
                                           int column, std::uint32_t (&b)[2]) {
  const std::uint32_t* at = words + word_row_of_lane(kType, step, t) * stride + column;
  if constexpr (!holds_codes(kType)) {
    b[0] = at[0];
    b[1] = at[4 * stride];
  } else {
    std::uint32_t codes = *at;
    if constexpr (kType == KvType::kInt4) codes = codes >> (step % 2 * 4) & 0x0f0f0f0fU;
    b[0] = bf16_of_codes(codes & 0xffU, codes >> 8U & 0xffU);
    b[1] = bf16_of_codes(codes >> 16U & 0xffU, codes >> 24U);
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
  float m[2];        // largest score so far, before sm_scale
  float l[2];        // of this thread's columns
  float minimum[2];  // sum of weight x minimum of V, of this thread's columns
};

template <typename C>
__device__ __forceinline__ void load_queries(const AttentionWork& work, const AttentionTask& task,
                                             const AttentionItemRef& item, int first_row,
                                             Thread<C>& thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + thread.g + 8 * half;
    const bool exists = row < task.n_rows;
    // Rows that do not exist are zeros that see what the last one sees; they are not stored.
    const std::int64_t at = task.first_row + (exists ? row : task.n_rows - 1);
    const std::int64_t token = at / item.gqa_group;
    const float* q =
        item.q + token * item.q_token_stride + at % item.gqa_group * item.q_head_stride;
    thread.position[half] = work.positions[item.positions_at + token];
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
    thread.l[half] = thread.minimum[half] = 0.0F;
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

// Scales of codes, then the mask.
template <typename C>
__device__ __forceinline__ void finish_scores(const Thread<C>& thread, const std::uint32_t* stage,
                                              const TileInfo& info, const Rows& rows,
                                              float (&scores)[C::kScoreGroups][4]) {
  const std::int64_t last = info.first_position + C::kKeys - 1;
  const bool all_seen =
      info.n_keys == C::kKeys && last <= rows.first_position &&
      (last < rows.sink || rows.last_position - info.first_position < rows.recent);
  if (all_seen && !C::kCodes) return;
#pragma unroll
  for (int n = 0; n < C::kScoreGroups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = thread.first_key + key_of_score(C::kType, n, 2 * thread.t + e);
      const float scale = C::kCodes ? range_at<C>(stage, 0, key) : 1.0F;
      const float minimum = C::kCodes ? range_at<C>(stage, 1, key) : 0.0F;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = scores[n][2 * half + e];
        if constexpr (C::kCodes) score = score * scale + minimum * thread.q_sum[half];
        if (!all_seen &&
            (key >= info.n_keys || !is_visible(info.first_position + key, thread.position[half],
                                               rows.sink, rows.recent))) {
          score = minus_infinity();
        }
      }
    }
  }
}

// Scores -> weights; scales what was summed so far to the new maxima.
template <typename C>
__device__ __forceinline__ void apply_softmax(Thread<C>& thread, float log2_scale,
                                              float (&scores)[C::kScoreGroups][4]) {
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
    thread.m[half] = m;
    thread.l[half] *= factor;
    thread.minimum[half] *= factor;
#pragma unroll
    for (int n = 0; n < C::kOutGroups; ++n) {
      thread.o[n][2 * half] *= factor;
      thread.o[n][2 * half + 1] *= factor;
    }
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
__device__ __forceinline__ void weigh_codes(Thread<C>& thread, const std::uint32_t* stage,
                                            float (&weights)[C::kScoreGroups][4]) {
#pragma unroll
  for (int n = 0; n < C::kScoreGroups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = thread.first_key + key_of_score(C::kType, n, 2 * thread.t + e);
      const float scale = range_at<C>(stage, 2, key);
      const float minimum = range_at<C>(stage, 3, key);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& weight = weights[n][2 * half + e];
        thread.minimum[half] += weight * minimum;
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

// grid.x is the task; Config::kThreads threads, Config::kWords words of shared memory.
template <typename C>
__global__ void __launch_bounds__(C::kThreads) mma_kernel(AttentionWork work) {
  auto* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const AttentionTask task = work.tasks[blockIdx.x];
  const AttentionItemRef& item = work.items[task.item];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_row = C::kKeyWarps > 1 ? 0 : warp * 16;
  Thread<C> thread;
  thread.g = static_cast<int>(threadIdx.x) % kWarp / 4;
  thread.t = static_cast<int>(threadIdx.x) % 4;
  thread.first_key = C::kKeyWarps > 1 ? warp * C::kWarpKeys : 0;
  load_queries<C>(work, task, item, first_row, thread);

  const std::int64_t* positions = work.positions + item.positions_at;
  const Rows rows = {
      .first_position = positions[task.first_row / item.gqa_group],
      .last_position = positions[(task.first_row + task.n_rows - 1) / item.gqa_group],
      .sink = item.sink,
      .recent = item.recent};
  Walk walk = {.blocks = work.blocks + item.blocks_at + task.first_block,
               .n_blocks = task.end_block - task.first_block};
  const float log2_scale = work.sm_scale * 1.4426950408889634F;
#pragma unroll
  for (int i = 0; i < C::kStages - 1; ++i) {
    load_tile<C>(work, rows, walk, shared + i * C::kStageWords);
  }
  for (int n = 0;; ++n) {
    wait_for_copies<C::kStages - 2>();
    // The tile's copies by all threads are done before any of them reads it; and all are done with
    // the tile before, whose stage is filled next.
    __syncthreads();
    const std::uint32_t* stage = shared + n % C::kStages * C::kStageWords;
    const TileInfo info = *reinterpret_cast<const TileInfo*>(stage + C::kInfoAt);
    if (info.n_keys == 0) break;
    load_tile<C>(work, rows, walk, shared + (n + C::kStages - 1) % C::kStages * C::kStageWords);
    if (thread.first_key >= info.n_keys) continue;  // the same for a whole warp
    float scores[C::kScoreGroups][4];
    compute_scores<C>(thread, stage, scores);
    finish_scores<C>(thread, stage, info, rows, scores);
    apply_softmax<C>(thread, log2_scale, scores);
    if constexpr (C::kCodes) weigh_codes<C>(thread, stage, scores);
    add_values<C>(thread, stage, scores);
  }
  finish_rows<C>(thread, work.sm_scale);
  if constexpr (C::kKeyWarps > 1) {
    merge_warps<C>(work, task, item, thread);
  } else {
    store_rows<C>(work, task, item, first_row, thread);
  }
}

template <KvType kType, int kHeadDim>
void launch_mma(Stream& stream, TilePurpose purpose, const AttentionWork& work) {
  using Decode = Config<kType, kHeadDim, TilePurpose::kDecode>;
  using Prefill = Config<kType, kHeadDim, TilePurpose::kPrefill>;
  static_assert(Decode::kRows == tile_rows(TilePurpose::kDecode));
  static_assert(Prefill::kRows == tile_rows(TilePurpose::kPrefill));
  switch (purpose) {
    case TilePurpose::kDecode:
      return launch(stream, "attention: decode", mma_kernel<Decode>,
                    {.x = work.n_tasks,
                     .block = Decode::kThreads,
                     .shared_bytes = std::size_t{4} * Decode::kWords},
                    work);
    case TilePurpose::kPrefill:
      return launch(stream, "attention: prefill", mma_kernel<Prefill>,
                    {.x = work.n_tasks,
                     .block = Prefill::kThreads,
                     .shared_bytes = std::size_t{4} * Prefill::kWords},
                    work);
  }
}

}  // namespace
}  // namespace longhaul::cuda
