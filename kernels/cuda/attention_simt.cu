// Attention without tensor cores: float32 products for caches of any type, any head_dim and block
// size. For f32 caches, and for the shapes that attention_mma.cuh leaves out. A warp takes a row:
// lanes along 32 keys for the scores, along head_dim for the outputs.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen_by.h"

namespace longhaul::cuda {
namespace {

constexpr int kThreads = kSimtRows * kWarp;

__device__ __forceinline__ float value_of(KvType type, std::uint32_t word, int lane) {
  switch (type) {
    case KvType::kF32:
      return __uint_as_float(word);
    case KvType::kBf16:
      return __uint_as_float(lane_bits(2, word, lane) << 16U);
    case KvType::kInt8:
      return static_cast<float>(lane_bits(4, word, lane));
    case KvType::kInt4:
    case KvType::kKivi4:
      return static_cast<float>(lane_bits(8, word, lane));
    case KvType::kKivi2:
      return static_cast<float>(lane_bits(16, word, lane));
    case KvType::kFp8:
      return float_of_e4m3(lane_bits(4, word, lane));
  }
  return 0.0F;
}

__device__ __forceinline__ float range_value(const std::byte* block, std::int64_t at,
                                             std::int64_t slot) {
  return float_of_f16(reinterpret_cast<const std::uint16_t*>(block + at)[slot]);
}

// A code of a group; its scale and minimum are number `range` of the part's.
__device__ __forceinline__ float value_in_group(const PartRef& part, const std::byte* block,
                                                std::int64_t range, float code) {
  return code * range_value(block, part.scales_at, range) +
         range_value(block, part.minima_at, range);
}

// One row's running state. q and o [head_dim] and weights [32] are its warp's shared memory.
struct RowState {
  std::int64_t head;  // of the item's
  const float* q;
  float q_sum;
  float* o;
  float* weights;
  float m;
  float l;
};

__device__ float score_of(const AttentionWork& work, const RowState& row, const std::byte* block,
                          std::int64_t slot) {
  const int lanes = lanes_of(work.k.type);
  const auto* words = reinterpret_cast<const std::uint32_t*>(block + work.k.at) + slot;
  float dot = 0.0F;
  for (std::int64_t d = 0; d < work.head_dim; d += lanes, words += work.block_size) {
    const std::uint32_t word = *words;
    for (int i = 0; i < lanes; ++i) {
      float value = value_of(work.k.type, word, i);
      if (holds_groups(work.k.type))
        value = value_in_group(work.k, block, slot / kKvGroup * work.head_dim + d + i, value);
      dot += row.q[d + i] * value;
    }
  }
  if (holds_codes(work.k.type)) {
    const float scale = range_value(block, work.k.scales_at, slot);
    dot = has_minimum(work.k.type)
              ? dot * scale + row.q_sum * range_value(block, work.k.minima_at, slot)
              : dot * scale;
  }
  return dot * work.sm_scale;
}

// Slots [slot, slot + 32) of a block; slot is a multiple of 16. Those from `end` on do not exist.
__device__ void attend_32(const AttentionWork& work, const AttentionItemRef& item, RowState& row,
                          const KvBlockRef& block, std::int64_t slot, std::int64_t end,
                          std::int64_t position) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const std::int64_t own = slot + lane;
  const bool visible = own < end &&
                       is_visible(block.first_position + own, position, item.sink, item.recent) &&
                       is_seen_by(block.seen_by, own, row.head);
  const float score = visible ? score_of(work, row, block.data, own) : minus_infinity();
  const float score_max = reduce_warp(score, Larger());
  const float m = score_max > row.m ? score_max : row.m;
  const float reference = m == minus_infinity() ? 0.0F : m;
  const float factor = weight_of(row.m, reference);
  const float p = visible ? expf(score - reference) : 0.0F;
  float weight = p;
  float minimum = 0.0F;
  if (holds_codes(work.v.type) && visible) {
    weight = p * range_value(block.data, work.v.scales_at, own);
    if (has_minimum(work.v.type)) minimum = p * range_value(block.data, work.v.minima_at, own);
  }
  if (holds_codes(work.v.type)) minimum = reduce_warp(minimum, Add());
  row.l = row.l * factor + reduce_warp(p, Add());
  row.m = m;
  sync_warp();  // the last weights have been read
  row.weights[lane] = weight;
  sync_warp();  // all weights are written before they are read
  const int lanes = lanes_of(work.v.type);
  const std::int64_t n = end - slot < kWarp ? end - slot : kWarp;
  const auto* words =
      reinterpret_cast<const std::uint32_t*>(block.data + work.v.at) + slot / lanes * work.head_dim;
  for (std::int64_t d = lane; d < work.head_dim; d += kWarp) {
    float sum = row.o[d] * factor + minimum;
    for (std::int64_t j = 0; j < n; j += lanes) {
      const std::uint32_t word = words[j / lanes * work.head_dim + d];
      for (int i = 0; i < lanes; ++i) {
        float value = value_of(work.v.type, word, i);
        if (holds_groups(work.v.type)) {
          const std::int64_t range = d / kKvGroup * work.block_size + slot + j + i;
          value = value_in_group(work.v, block.data, range, value);
        }
        sum += row.weights[j + i] * value;
      }
    }
    row.o[d] = sum;
  }
}

__device__ void store(const AttentionWork& work, const RowPlace& place, const RowState& row) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  if (place.partial_at >= 0) {
    float* o = work.partials + place.partial_at;
    for (std::int64_t d = lane; d < work.head_dim; d += kWarp) {
      o[place.row * work.head_dim + d] = row.o[d];
    }
    float* m = o + kSimtRows * work.head_dim;
    if (lane == 0) m[place.row] = row.m;
    if (lane == 1) m[kSimtRows + place.row] = row.l;
    return;
  }
  if (is_empty(row.m, row.l)) return;
  const StateRef& state = place.item.state;
  float* m = state.m_at(place.token, place.head);
  float* l = state.l_at(place.token, place.head);
  const Merged both = merged(*m, *l, row.m, row.l);
  float* o = state.o_at(place.token, place.head);
  for (std::int64_t d = lane; d < work.head_dim; d += kWarp) {
    o[d] = o[d] * both.weight_a + row.o[d] * both.weight_b;
  }
  sync_warp();  // all lanes have read m and l before they are written
  if (lane == 0) *m = both.m;
  if (lane == 1) *l = both.l;
}

// grid.x is the task. Shared: for each row q [head_dim], o [head_dim], weights [32].
__global__ void __launch_bounds__(kThreads) simt_kernel(AttentionWork work) {
  const AttentionTask& task = work.tasks[blockIdx.x];
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const auto row_of_tile = static_cast<std::int64_t>(threadIdx.x / kWarp);
  if (row_of_tile >= task.n_rows) return;
  const RowPlace place = row_place(work, task, static_cast<int>(row_of_tile));
  const AttentionItemRef& item = place.item;
  float* memory =
      reinterpret_cast<float*>(shared_memory()) + row_of_tile * (2 * work.head_dim + kWarp);
  const float* q = item.q + place.token * item.q_token_stride + place.head * item.q_head_stride;
  float q_sum = 0.0F;
  for (std::int64_t d = lane; d < work.head_dim; d += kWarp) {
    memory[d] = q[d];
    memory[work.head_dim + d] = 0.0F;
    q_sum += q[d];
  }
  q_sum = reduce_warp(q_sum, Add());  // and all lanes have written q before it is read
  RowState row = {.head = place.head,
                  .q = memory,
                  .q_sum = q_sum,
                  .o = memory + work.head_dim,
                  .weights = memory + 2 * work.head_dim,
                  .m = minus_infinity(),
                  .l = 0.0F};
  sync_warp();  // q is written
  const std::int64_t position = work.positions[item.positions_at + place.token];
  for (std::int64_t b = 0; b < task.n_blocks; ++b) {
    const KvBlockRef block = work.blocks[task.first_block + b];
    const Slots slots = visible_slots(block, position, position, item.sink, item.recent);
    for (std::int64_t slot = slots.begin / 16 * 16; slot < slots.end; slot += kWarp) {
      attend_32(work, item, row, block, slot, slots.end, position);
    }
  }
  store(work, place, row);
}

}  // namespace

void attention_simt(Stream& stream, const AttentionWork& work) {
  launch(stream, "attention", simt_kernel,
         {.x = work.n_tasks,
          .block = kThreads,
          .shared_bytes =
              static_cast<std::size_t>(kSimtRows * (2 * work.head_dim + kWarp)) * sizeof(float)},
         work);
}

}  // namespace longhaul::cuda
