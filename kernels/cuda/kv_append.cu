// kv_append: converts, quantises and writes new tokens in one pass. A thread block takes 8 slots of
// a block (the most tokens that share a word), a warp for each; the values go to shared memory as
// words hold them, then threads write whole words, so no two of them touch the same one. In a new
// block, slots without a token are written, too: as zeros.
#include <algorithm>
#include <vector>

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_words.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/reduce.cuh"
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
  auto* words = reinterpret_cast<std::uint32_t*>(task.block + shape.k.at);
  for (std::int64_t i = threadIdx.x; i < shape.head_dim / lanes * kSlots; i += kThreads) {
    const std::int64_t slot = group + i % kSlots;
    const std::int64_t row = i / kSlots;
    const bool has_token = slot >= task.first_slot && slot < task.end_slot;
    if (!has_token && task.first_slot > 0) continue;
    std::uint32_t word = 0;
    for (int lane = 0; has_token && lane < lanes; ++lane) {
      word |= values[i % kSlots * shape.head_dim + row * lanes + lane]
              << static_cast<unsigned>(lane_shift(lanes, lane));
    }
    words[row * shape.block_size + slot] = word;
  }
}

// V is [block_size / lanes, head_dim] words; other tokens' values in a word stay.
__device__ void write_v(const Shape& shape, const Task& task, std::int64_t group,
                        const std::uint32_t* values) {
  const int lanes = lanes_of(shape.v.type);
  auto* words = reinterpret_cast<std::uint32_t*>(task.block + shape.v.at);
  for (std::int64_t i = threadIdx.x; i < kSlots / lanes * shape.head_dim; i += kThreads) {
    const std::int64_t first = i / shape.head_dim * lanes;  // slot within the group
    const std::int64_t d = i % shape.head_dim;
    std::uint32_t word = 0;
    std::uint32_t ours = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t slot = group + first + lane;
      const bool has_token = slot >= task.first_slot && slot < task.end_slot;
      if (!has_token && task.first_slot > 0) continue;
      const auto shift = static_cast<unsigned>(lane_shift(lanes, lane));
      if (has_token) word |= values[(first + lane) * shape.head_dim + d] << shift;
      ours |= lane_mask(lanes) << shift;
    }
    if (ours == 0) continue;
    std::uint32_t* to = words + (group + first) / lanes * shape.head_dim + d;
    *to = ours == 0xffffffffU ? word : (*to & ~ours) | word;
  }
}

// grid.x is the task, grid.y the group of slots. Shared: [2, 8, head_dim] words.
__global__ void kv_append_kernel(Shape shape, const Task* tasks, const std::int32_t* rows) {
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
    convert(shape.k, task.k + row * task.k_stride, shape.head_dim, task.block, slot,
            k_values + warp * shape.head_dim);
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

void add_tasks(const KvBlockShape& shape, const KvAppendItem& item, std::vector<Task>& tasks,
               std::vector<std::int32_t>& rows) {
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
                     .first_slot = static_cast<std::int32_t>(within),
                     .end_slot = static_cast<std::int32_t>(within + n)});
    token += n;
  }
}

}  // namespace

void kv_append(Stream& stream, const KvAppendArgs& args) {
  std::vector<Task> tasks;
  std::vector<std::int32_t> rows;
  for (const KvAppendItem& item : args.items) add_tasks(args.shape, item, tasks, rows);
  if (tasks.empty()) return;
  Parcel parcel;
  const std::size_t tasks_at = parcel.add(tasks);
  const std::size_t rows_at = parcel.add(rows);
  const std::byte* base = stream.upload(parcel.bytes());
  const Shape shape = {.block_size = args.shape.block_size,
                       .head_dim = args.shape.head_dim,
                       .k = k_part(args.shape),
                       .v = v_part(args.shape)};
  launch(stream, "kv_append", kv_append_kernel,
         {.x = static_cast<std::int64_t>(tasks.size()),
          .y = args.shape.block_size / kSlots,
          .block = kThreads,
          .shared_bytes = static_cast<std::size_t>(2 * kSlots * args.shape.head_dim) * 4},
         shape, part<Task>(base, tasks_at), part<std::int32_t>(base, rows_at));
}

}  // namespace longhaul::cuda
