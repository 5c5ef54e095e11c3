// Uploads the work of attention (attention_schedule.h), queues its kernels and merges the ranges.
#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table_schedule.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kMergeThreads = 256;

// Merges the partial states of a tile's ranges into the item's state, in their order. grid.x is the
// split (without rows: nothing), grid.y a group of rows, a warp for each row. Shared: [warps,
// kMostRanges] weights.
__global__ void merge_ranges_kernel(AttentionWork work, const AttentionSplit* splits,
                                    std::int64_t tile) {
  const AttentionSplit split = splits[blockIdx.x];
  const auto warp = static_cast<std::int64_t>(threadIdx.x / kWarp);
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * (kMergeThreads / kWarp) + warp;
  if (row >= split.n_rows) return;
  float* weights = reinterpret_cast<float*>(shared_memory()) + warp * kMostRanges;
  const std::int64_t stride = tile * (work.head_dim + 2);  // from range to range
  const float* o = work.partials + split.partial_at + row * work.head_dim;
  const float* m = work.partials + split.partial_at + tile * work.head_dim + row;
  const float* l = m + tile;
  float m_all = minus_infinity();
  for (std::int64_t r = lane; r < split.n_ranges; r += kWarp)
    m_all = Larger()(m[r * stride], m_all);
  m_all = reduce_warp(m_all, Larger());
  float l_all = 0.0F;
  for (std::int64_t r = lane; r < split.n_ranges; r += kWarp) {
    weights[r] = weight_of(m[r * stride], m_all);
    l_all += weights[r] * l[r * stride];
  }
  l_all = reduce_warp(l_all, Add());
  sync_warp();  // all weights are written before they are read
  if (is_empty(m_all, l_all)) return;
  const AttentionItemRef& item = work.items[split.item];
  const std::int64_t token = (split.first_row + row) / item.gqa_group;
  const std::int64_t head = (split.first_row + row) % item.gqa_group;
  float* to_m = item.state.m_at(token, head);
  float* to_l = item.state.l_at(token, head);
  float* to_o = item.state.o_at(token, head);
  const Merged both = merged(*to_m, *to_l, m_all, l_all);
  for (std::int64_t d = lane; d < work.head_dim; d += kWarp) {
    float sum = 0.0F;
    for (std::int32_t r = 0; r < split.n_ranges; ++r) sum += weights[r] * o[r * stride + d];
    to_o[d] = to_o[d] * both.weight_a + sum * both.weight_b;
  }
  sync_warp();  // all lanes have read m and l before they are written
  if (lane == 0) *to_m = both.m;
  if (lane == 1) *to_l = both.l;
}

std::int64_t most_rows_of(std::span<const AttentionTask> tasks) {
  std::int64_t out = 0;
  for (const AttentionTask& task : tasks) out = std::max<std::int64_t>(out, task.n_rows);
  return out;
}

void run_path(Stream& stream, AttentionPath path, KvType type, const AttentionWork& work) {
  if (path == AttentionPath::kSimt) return attention_simt(stream, work);
  switch (type) {
    case KvType::kBf16:
      return attention_mma_bf16(stream, path, work);
    case KvType::kInt8:
      return attention_mma_int8(stream, path, work);
    case KvType::kInt4:
      return attention_mma_int4(stream, path, work);
    case KvType::kFp8:
      return attention_mma_fp8(stream, path, work);
    case KvType::kKivi4:
      return attention_mma_kivi4(stream, path, work);
    case KvType::kKivi2:
      return attention_mma_kivi2(stream, path, work);
    case KvType::kF32:
      break;
  }
  throw Error(ErrorCode::kInternal, "attention: no kernel for this type on tensor cores");
}

void check_alignment(const AttentionArgs& args) {
  for (const AttentionItem& item : args.items) {
    for (const KvBlockRef& block : item.blocks) {
      require(reinterpret_cast<std::uintptr_t>(block.data) % 16 == 0,
              "attention: blocks in GPU memory must be aligned to 16 bytes");
    }
  }
}

bool tells_heads(std::span<const KvBlockRef> blocks) {
  return std::ranges::any_of(blocks, [](const KvBlockRef& b) { return b.seen_by != nullptr; });
}

AttentionKernels kernels_for(const KvBlockShape& shape, const DeviceInfo& device) {
  return {.mma = has_mma_kernel(shape, device.shared_bytes),
          .wide_decode = has_wide_decode(shape, device.shared_bytes),
          .prefill_places = kPrefillBlocksTogether * device.n_multiprocessors};
}

template <typename T>
std::int64_t with_room_of(const std::vector<T>& values) {
  return static_cast<std::int64_t>(with_room(values.size()));
}

// Items for the kernels that every chip has.
void attention_anywhere(Stream& stream, const AttentionArgs& args, AttentionKernels kernels) {
  const AttentionSchedule schedule = make_attention_schedule(args, kernels);
  if (schedule.items.empty()) return;
  Parcel parcel;
  const std::size_t items_at = parcel.add(schedule.items);
  const std::size_t positions_at = parcel.add(schedule.positions);
  const std::size_t blocks_at = parcel.add(schedule.blocks);
  const std::size_t members_at = parcel.add(schedule.members);
  constexpr std::size_t kPaths = std::size(kAttentionPaths);
  std::size_t tasks_at[kPaths];
  std::size_t splits_at[kPaths];
  for (std::size_t p = 0; p < kPaths; ++p) {
    tasks_at[p] = parcel.add(schedule.tasks[p]);
    splits_at[p] = parcel.add(schedule.splits[p]);
  }
  const std::byte* base = stream.upload(parcel.bytes());
  std::byte* partials =
      stream.scratch(static_cast<std::size_t>(schedule.n_partial_floats) * sizeof(float));
  AttentionWork work = work_of(args);
  work.items = part<AttentionItemRef>(base, items_at);
  work.members = part<AttentionMember>(base, members_at);
  work.positions = part<std::int64_t>(base, positions_at);
  work.blocks = part<KvBlockRef>(base, blocks_at);
  work.partials = reinterpret_cast<float*>(partials);
  work.tells_heads = tells_heads(schedule.blocks);
  for (const AttentionPath path : kAttentionPaths) {
    const auto p = static_cast<std::size_t>(path);
    work.tasks = part<AttentionTask>(base, tasks_at[p]);
    work.n_tasks = static_cast<std::int64_t>(with_room(schedule.tasks[p].size()));
    work.most_rows = most_rows_of(schedule.tasks[p]);
    if (work.n_tasks > 0) run_path(stream, path, args.shape.k_type, work);
  }
  // After all tasks: ranges of one item may have gone different paths.
  for (const AttentionPath path : kAttentionPaths) {
    const auto p = static_cast<std::size_t>(path);
    merge_ranges(stream, work, part<AttentionSplit>(base, splits_at[p]),
                 static_cast<std::int64_t>(with_room(schedule.splits[p].size())),
                 partial_rows(path));
  }
}

// Items whose blocks the GPU finds by number.
void attention_by_tables(Stream& stream, const AttentionArgs& args, AttentionKernels kernels) {
  const TableSchedule schedule = make_table_schedule(args, kernels);
  if (schedule.n_ranges == 0) return;
  Parcel parcel;
  const std::size_t items_at = parcel.add(schedule.items);
  const std::size_t tables_at = parcel.add(schedule.tables);
  const std::size_t positions_at = parcel.add(schedule.positions);
  const std::size_t members_at = parcel.add(schedule.members);
  const std::size_t decode_at = parcel.add(schedule.decode);
  const std::size_t wide_decode_at = parcel.add(schedule.wide_decode);
  const std::size_t splits_at = parcel.add(schedule.splits);
  const std::byte* base = stream.upload(parcel.bytes());
  std::byte* partials =
      stream.scratch(static_cast<std::size_t>(schedule.n_partial_floats) * sizeof(float));
  AttentionWork work = work_of(args);
  work.items = part<AttentionItemRef>(base, items_at);
  work.tables = part<TableRef>(base, tables_at);
  work.n_ranges = schedule.n_ranges;
  work.tasks = part<AttentionTask>(base, wide_decode_at);
  work.members = part<AttentionMember>(base, members_at);
  work.positions = part<std::int64_t>(base, positions_at);
  work.partials = reinterpret_cast<float*>(partials);
  work.n_tasks = with_room_of(schedule.wide_decode);
  work.most_rows = most_rows_of(schedule.wide_decode);
  if (work.n_tasks > 0) run_path(stream, AttentionPath::kWideDecode, args.shape.k_type, work);
  work.tasks = part<AttentionTask>(base, decode_at);
  work.n_tasks = with_room_of(schedule.decode);
  work.most_rows = most_rows_of(schedule.decode);
  if (work.n_tasks > 0) run_path(stream, AttentionPath::kDecode, args.shape.k_type, work);
  merge_ranges(stream, work, part<AttentionSplit>(base, splits_at), with_room_of(schedule.splits),
               kDecodeRows);
}

}  // namespace

void merge_ranges(Stream& stream, const AttentionWork& work, const AttentionSplit* splits,
                  std::int64_t n_splits, std::int64_t tile_rows) {
  launch(stream, "attention: merge", merge_ranges_kernel,
         {.x = n_splits,
          .y = ceil_div(tile_rows, kMergeThreads / kWarp),
          .block = kMergeThreads,
          .shared_bytes = kMergeThreads / kWarp * kMostRanges * sizeof(float)},
         work, splits, tile_rows);
}

void attention(Stream& stream, const AttentionArgs& args) {
  const AttentionKernels kernels = kernels_for(args.shape, stream.device());
  const bool has_hopper = has_hopper_kernel(args.shape, stream.device());
  std::vector<AttentionItem> by_table;
  std::vector<AttentionItem> large;
  std::vector<AttentionItem> others;
  for (const AttentionItem& item : args.items) {
    if (goes_by_table(args.shape, kernels, item)) {
      by_table.push_back(item);
    } else if (has_hopper && item.q.dim(0) * item.q.dim(1) >= hopper_attention_rows() &&
               !tells_heads(item.blocks)) {
      large.push_back(item);
    } else {
      others.push_back(item);
    }
  }
  AttentionArgs part = args;
  part.items = by_table;
  if (!by_table.empty()) attention_by_tables(stream, part, kernels);
  part.items = large;
  if (!large.empty()) {
    check_alignment(part);
    attention_hopper(stream, part);
  }
  part.items = others;
  if (!others.empty()) {
    check_alignment(part);
    attention_anywhere(stream, part, kernels);
  }
}

}  // namespace longhaul::cuda
