// kv_append: converts, quantises and writes new tokens in one pass. A thread block takes 8 slots of
// a block (the most tokens that share a word), a warp for each; the values go to shared memory as
// words hold them, then threads write whole words, so no two of them touch the same one. In a new
// block, slots without a token are written, too: as zeros.
//
// begin_attention is the same launch, in which keys are turned on their way; thread blocks behind
// those of the slots turn queries and empty their states, a warp for each token and head.
#include <algorithm>
#include <vector>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/cuda/softmax_state.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kSlots = 8;
constexpr int kThreads = kSlots * kWarp;

// Tokens that go to slots [first_slot, end_slot) of one block, which is new if they begin it.
struct Task {
  const float* k;  // of the token for first_slot, or of all rows, where those of tokens are listed
  const float* v;
  std::int64_t k_stride;
  std::int64_t v_stride;
  std::byte* block;
  const std::byte** entry;  // where its address goes, or null
  std::int64_t rows_at;     // of the row of the token for first_slot; -1: rows are not listed
  std::int64_t turn_row;    // of the angles that belong to the row at k
  std::int32_t first_slot;
  std::int32_t end_slot;
};

struct Shape {
  std::int64_t block_size;
  std::int64_t head_dim;
  PartRef k;
  PartRef v;
  bool operator==(const Shape&) const = default;
};

// Norm and RoPE of heads; none where cos is null.
struct Turn {
  const float* cos;  // [n_tokens, half]
  std::int64_t cos_stride;
  const float* sin;
  std::int64_t sin_stride;
  std::int64_t half;
  const float* norm;  // [head_dim], or null
  float norm_eps;
  bool operator==(const Turn&) const = default;
};

struct Queries {
  float* q;  // [n_tokens, n_heads, head_dim]
  std::int64_t token_stride;
  std::int64_t head_stride;
  std::int64_t n_heads;
  std::int64_t n_rows;  // n_tokens n_heads
  Turn turn;
  StateRef state;
  bool operator==(const Queries&) const = default;
};

// A token's head after norm and RoPE, by one warp; `out` may be x.
__device__ void turn_head(const Turn& turn, const float* x, std::int64_t token,
                          std::int64_t head_dim, float* out) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const float factor =
      turn.norm == nullptr ? 1.0F : norm_factor_of_warp(x, head_dim, turn.norm_eps);
  const auto normed = [&](std::int64_t d) {
    return turn.norm == nullptr ? x[d] : x[d] * factor * turn.norm[d];
  };
  for (std::int64_t pair = lane; pair < turn.half; pair += kWarp) {
    const DimPair after =
        turned(normed(pair), normed(pair + turn.half), turn.cos[token * turn.cos_stride + pair],
               turn.sin[token * turn.sin_stride + pair]);
    out[pair] = after.low;
    out[pair + turn.half] = after.high;
  }
  for (std::int64_t d = 2 * turn.half + lane; d < head_dim; d += kWarp) out[d] = normed(d);
}

// The rows of queries of one thread block, `number` among those of queries.
__device__ void begin_queries(const Queries& queries, std::int64_t head_dim, std::int64_t number) {
  const std::int64_t row = number * kSlots + static_cast<std::int64_t>(threadIdx.x / kWarp);
  if (row >= queries.n_rows) return;
  const std::int64_t token = row / queries.n_heads;
  const std::int64_t head = row % queries.n_heads;
  float* q = queries.q + token * queries.token_stride + head * queries.head_stride;
  turn_head(queries.turn, q, token, head_dim, q);
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  float* o = queries.state.o_at(token, head);
  for (std::int64_t d = lane; d < head_dim; d += kWarp) o[d] = 0.0F;
  if (lane != 0) return;
  *queries.state.m_at(token, head) = minus_infinity();
  *queries.state.l_at(token, head) = 0.0F;
}

// One token's values as bits of words, by one warp: out [head_dim]. Writes scale and minimum.
__device__ void convert(const PartRef& part, const float* x, std::int64_t head_dim,
                        std::byte* block, std::int64_t slot, std::uint32_t* out) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  if (!holds_codes(part.type)) {
    for (std::int64_t d = lane; d < head_dim; d += kWarp) {
      out[d] = part.type == KvType::kF32 ? __float_as_uint(x[d]) : bf16_pair(x[d], 0.0F);
    }
    return;
  }
  const CodeRange range = range_of(part.type, x, head_dim);
  for (std::int64_t d = lane; d < head_dim; d += kWarp) out[d] = code_of(part.type, x[d], range);
  if (lane != 0) return;
  *reinterpret_cast<std::uint16_t*>(block + part.scales_at + 2 * slot) = range.scale;
  if (!has_minimum(part.type)) return;
  *reinterpret_cast<std::uint16_t*>(block + part.minima_at + 2 * slot) = range.minimum;
}

__device__ void clear_range(const PartRef& part, std::byte* block, std::int64_t slot) {
  if (!holds_codes(part.type)) return;
  *reinterpret_cast<std::uint16_t*>(block + part.scales_at + 2 * slot) = 0;
  if (!has_minimum(part.type)) return;
  *reinterpret_cast<std::uint16_t*>(block + part.minima_at + 2 * slot) = 0;
}

// K is [head_dim / lanes, block_size] words; values [8 slots, head_dim].
__device__ void write_k(const Shape& shape, const Task& task, std::int64_t group,
                        const std::uint32_t* values) {
  const int lanes = lanes_of(shape.k.type);
  const auto head_dim = static_cast<int>(shape.head_dim);
  auto* words = reinterpret_cast<std::uint32_t*>(task.block + shape.k.at);
  for (auto i = static_cast<int>(threadIdx.x); i < head_dim / lanes * kSlots; i += kThreads) {
    const std::int64_t slot = group + i % kSlots;
    const int row = i / kSlots;
    const bool has_token = slot >= task.first_slot && slot < task.end_slot;
    if (!has_token && task.first_slot > 0) continue;
    std::uint32_t word = 0;
    for (int lane = 0; has_token && lane < lanes; ++lane) {
      word |= values[i % kSlots * head_dim + row * lanes + lane]
              << static_cast<unsigned>(lane_shift(lanes, lane));
    }
    words[row * shape.block_size + slot] = word;
  }
}

// V is [block_size / lanes, head_dim] words; other tokens' values in a word stay.
__device__ void write_v(const Shape& shape, const Task& task, std::int64_t group,
                        const std::uint32_t* values) {
  const int lanes = lanes_of(shape.v.type);
  const auto head_dim = static_cast<int>(shape.head_dim);
  auto* words = reinterpret_cast<std::uint32_t*>(task.block + shape.v.at);
  for (auto i = static_cast<int>(threadIdx.x); i < kSlots / lanes * head_dim; i += kThreads) {
    const int first = i / head_dim * lanes;  // slot within the group
    const int d = i % head_dim;
    std::uint32_t word = 0;
    std::uint32_t ours = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t slot = group + first + lane;
      const bool has_token = slot >= task.first_slot && slot < task.end_slot;
      if (!has_token && task.first_slot > 0) continue;
      const auto shift = static_cast<unsigned>(lane_shift(lanes, lane));
      if (has_token) word |= values[(first + lane) * head_dim + d] << shift;
      ours |= lane_mask(lanes) << shift;
    }
    if (ours == 0) continue;
    std::uint32_t* to = words + (group + first) / lanes * shape.head_dim + d;
    *to = ours == 0xffffffffU ? word : (*to & ~ours) | word;
  }
}

// grid.x is the task, grid.y the group of slots; behind n_tasks thread blocks of queries, along y
// first. Shared: [2, 8, head_dim] words, and [8, head_dim] floats where keys are turned.
__global__ void kv_append_kernel(Shape shape, const Task* tasks, std::int64_t n_tasks,
                                 const std::int32_t* rows, Turn turn, Queries queries) {
  if (blockIdx.x >= n_tasks) {
    return begin_queries(queries, shape.head_dim,
                         (blockIdx.x - n_tasks) * static_cast<std::int64_t>(gridDim.y) +
                             static_cast<std::int64_t>(blockIdx.y));
  }
  const Task task = tasks[blockIdx.x];
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.y) * kSlots;
  const bool is_new = task.first_slot == 0;
  if (blockIdx.y == 0 && threadIdx.x == 0 && task.entry != nullptr) *task.entry = task.block;
  if (!is_new && (group >= task.end_slot || group + kSlots <= task.first_slot)) return;
  auto* k_values = reinterpret_cast<std::uint32_t*>(shared_memory());
  std::uint32_t* v_values = k_values + kSlots * shape.head_dim;
  const auto warp = static_cast<std::int64_t>(threadIdx.x / kWarp);
  const std::int64_t slot = group + warp;
  if (slot >= task.first_slot && slot < task.end_slot) {
    const std::int64_t token = slot - task.first_slot;
    const std::int64_t row = task.rows_at < 0 ? token : rows[task.rows_at + token];
    const float* k = task.k + row * task.k_stride;
    if (turn.cos != nullptr) {
      auto* after = reinterpret_cast<float*>(v_values + kSlots * shape.head_dim);
      turn_head(turn, k, task.turn_row + row, shape.head_dim, after + warp * shape.head_dim);
      k = after + warp * shape.head_dim;
      sync_warp();  // all lanes have written what all read
    }
    convert(shape.k, k, shape.head_dim, task.block, slot, k_values + warp * shape.head_dim);
    convert(shape.v, task.v + row * task.v_stride, shape.head_dim, task.block, slot,
            v_values + warp * shape.head_dim);
  } else if (is_new && threadIdx.x % kWarp == 0) {
    clear_range(shape.k, task.block, slot);
    clear_range(shape.v, task.block, slot);
  }
  __syncthreads();  // all values are in shared memory before words are put together
  write_k(shape, task, group, k_values);
  write_v(shape, task, group, v_values);
}

// `angles_row` belongs to the item's first row of keys.
void add_tasks(const KvBlockShape& shape, const KvAppendItem& item, std::int64_t angles_row,
               std::vector<Task>& tasks, std::vector<std::int32_t>& rows) {
  const bool are_listed = !item.rows.empty();
  const auto rows_at = static_cast<std::int64_t>(rows.size());
  rows.insert(rows.end(), item.rows.begin(), item.rows.end());
  for (std::int64_t token = 0; token < item.n_tokens();) {
    const std::int64_t slot = item.first_slot + token;
    const std::int64_t within = slot % shape.block_size;
    const std::int64_t n = std::min(shape.block_size - within, item.n_tokens() - token);
    const std::int64_t block = slot / shape.block_size;
    const std::int64_t first_row = are_listed ? 0 : token;
    tasks.push_back({.k = item.k.data() + first_row * item.k.stride(0),
                     .v = item.v.data() + first_row * item.v.stride(0),
                     .k_stride = item.k.stride(0),
                     .v_stride = item.v.stride(0),
                     .block = item.blocks[static_cast<std::size_t>(block)],
                     .entry = item.entries == nullptr ? nullptr : item.entries + block,
                     .rows_at = are_listed ? rows_at + token : -1,
                     .turn_row = angles_row + first_row,
                     .first_slot = static_cast<std::int32_t>(within),
                     .end_slot = static_cast<std::int32_t>(within + n)});
    token += n;
  }
}

void append(Stream& stream, const KvAppendArgs& args, const TensorView<float, 3>& k,
            const Turn& turn, const Queries& queries) {
  std::vector<Task> tasks;
  std::vector<std::int32_t> rows;
  for (const KvAppendItem& item : args.items) {
    const bool is_turned = turn.cos != nullptr;
    add_tasks(args.shape, item, is_turned ? (item.k.data() - k.data()) / k.stride(0) : 0, tasks,
              rows);
  }
  const std::int64_t n_groups = args.shape.block_size / kSlots;
  const auto n_tasks = static_cast<std::int64_t>(tasks.size());
  const std::int64_t n_of_queries = ceil_div(ceil_div(queries.n_rows, kSlots), n_groups);
  if (n_tasks + n_of_queries == 0) return;
  Parcel parcel;
  const std::size_t tasks_at = parcel.add(tasks);
  const std::size_t rows_at = parcel.add(rows);
  const std::byte* base = tasks.empty() ? nullptr : stream.upload(parcel.bytes());
  const Shape shape = {.block_size = args.shape.block_size,
                       .head_dim = args.shape.head_dim,
                       .k = k_part(args.shape),
                       .v = v_part(args.shape)};
  const std::int64_t n_parts = turn.cos == nullptr ? 2 : 3;
  launch(stream, "kv_append", kv_append_kernel,
         {.x = n_tasks + n_of_queries,
          .y = n_groups,
          .block = kThreads,
          .shared_bytes = static_cast<std::size_t>(n_parts * kSlots * args.shape.head_dim) * 4},
         shape, part<Task>(base, tasks_at), n_tasks, part<std::int32_t>(base, rows_at), turn,
         queries);
}

Turn turn_of(const BeginAttentionArgs& args, std::span<const float> norm) {
  return {.cos = args.cos.data(),
          .cos_stride = args.cos.stride(0),
          .sin = args.sin.data(),
          .sin_stride = args.sin.stride(0),
          .half = args.cos.dim(1),
          .norm = norm.empty() ? nullptr : norm.data(),
          .norm_eps = args.norm_eps};
}

}  // namespace

void kv_append(Stream& stream, const KvAppendArgs& args) {
  append(stream, args, /*k=*/{}, /*turn=*/{}, /*queries=*/{});
}

void begin_attention(Stream& stream, const BeginAttentionArgs& args) {
  Queries queries = {};
  if (args.q.size() > 0) {
    queries = {.q = args.q.data(),
               .token_stride = args.q.stride(0),
               .head_stride = args.q.stride(1),
               .n_heads = args.q.dim(1),
               .n_rows = args.q.dim(0) * args.q.dim(1),
               .turn = turn_of(args, args.q_norm),
               .state = state_ref(args.state)};
  }
  append(stream, args.append, args.k, args.k.size() > 0 ? turn_of(args, args.k_norm) : Turn{},
         queries);
}

}  // namespace longhaul::cuda
