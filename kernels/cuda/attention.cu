// Cuts attention into tasks (tile of rows x range of blocks), queues their kernel and merges the
// ranges. How an item is cut depends on the item alone, so its result does not depend on the other
// items of a call.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {
namespace {

// A range of keys is at least this long, and an item is cut into about as many tasks: a few for
// each multiprocessor of a large chip when several items are done together, as in decode.
constexpr std::int64_t kMinSplitKeys = 512;
constexpr std::int64_t kTasksOfItem = kMostRanges;
// Masks may say "unlimited"; sums and differences with positions must not overflow.
constexpr std::int64_t kMostDistance = std::int64_t{1} << 62;

enum class Path { kSimt, kDecode, kPrefill };
constexpr Path kPaths[] = {Path::kSimt, Path::kDecode, Path::kPrefill};

int rows_of_tile(Path path) {
  switch (path) {
    case Path::kSimt:
      return kSimtRows;
    case Path::kDecode:
      return tile_rows(TilePurpose::kDecode);
    case Path::kPrefill:
      return tile_rows(TilePurpose::kPrefill);
  }
  return 0;
}

Path path_of(bool mma, std::int64_t n_rows) {
  if (!mma) return Path::kSimt;
  return n_rows <= tile_rows(TilePurpose::kDecode) ? Path::kDecode : Path::kPrefill;
}

struct Schedule {
  std::vector<AttentionItemRef> items;
  std::vector<std::int64_t> positions;
  std::vector<KvBlockRef> blocks;
  std::vector<AttentionTask> tasks[3];  // of each path
  std::vector<AttentionSplit> splits[3];
  std::int64_t n_partial_floats = 0;
};

// Blocks [begin, end) of a tile, without those before and after that it cannot see. For blocks in
// ascending order only; those between a sink and the recent ones are skipped by the kernels.
Extent seen_blocks(std::span<const KvBlockRef> blocks, std::int64_t first, std::int64_t last,
                   const AttentionMask& mask) {
  const auto begins_in_time = [&](const KvBlockRef& block) { return block.first_position <= last; };
  const auto is_too_old = [&](const KvBlockRef& block) {
    return block.first_position + block.n_tokens <=
           first - std::min(mask.recent, kMostDistance) + 1;
  };
  const auto end = std::ranges::partition_point(blocks, begins_in_time);
  const auto begin =
      mask.sink > 0 ? blocks.begin() : std::partition_point(blocks.begin(), end, is_too_old);
  return {begin - blocks.begin(), end - blocks.begin()};
}

bool ascends(std::span<const KvBlockRef> blocks) {
  for (std::size_t b = 1; b < blocks.size(); ++b) {
    if (blocks[b].first_position < blocks[b - 1].first_position + blocks[b - 1].n_tokens) {
      return false;
    }
  }
  return true;
}

// Ranges of nearly equal numbers of tokens within `seen`.
std::vector<Extent> ranges_of(std::span<const KvBlockRef> blocks, Extent seen,
                              std::int64_t n_tiles) {
  std::int64_t n_keys = 0;
  for (std::int64_t b = seen.begin; b < seen.end; ++b) {
    n_keys += blocks[static_cast<std::size_t>(b)].n_tokens;
  }
  const std::int64_t n_ranges = std::clamp<std::int64_t>(
      std::min(n_keys / kMinSplitKeys, kTasksOfItem / n_tiles), 1, kTasksOfItem);
  std::vector<Extent> out;
  Extent range = {seen.begin, seen.begin};
  std::int64_t counted = 0;
  for (std::int64_t b = seen.begin; b < seen.end; ++b) {
    counted += blocks[static_cast<std::size_t>(b)].n_tokens;
    ++range.end;
    const auto n_done = static_cast<std::int64_t>(out.size());
    if (n_done + 1 < n_ranges && counted >= (n_done + 1) * n_keys / n_ranges) {
      out.push_back(range);
      range.begin = range.end;
    }
  }
  if (!range.empty()) out.push_back(range);
  return out;
}

void add_tile(const AttentionItem& item, Path path, AttentionTask task, bool sorted,
              std::int64_t n_tiles, std::int64_t head_dim, Schedule& schedule) {
  const std::int64_t gqa_group = item.q.dim(1);
  const auto position = [&](std::int64_t row) {
    return item.q_positions[static_cast<std::size_t>(row / gqa_group)];
  };
  const Extent all = {0, static_cast<std::int64_t>(item.blocks.size())};
  const Extent seen = sorted ? seen_blocks(item.blocks, position(task.first_row),
                                           position(task.first_row + task.n_rows - 1), item.mask)
                             : all;
  const std::vector<Extent> ranges = ranges_of(item.blocks, seen, n_tiles);
  const auto index = static_cast<std::size_t>(path);
  const bool is_split = ranges.size() > 1;
  if (is_split) {
    schedule.splits[index].push_back({.item = task.item,
                                      .first_row = task.first_row,
                                      .n_rows = task.n_rows,
                                      .n_ranges = static_cast<std::int32_t>(ranges.size()),
                                      .partial_at = schedule.n_partial_floats});
  }
  for (const Extent& range : ranges) {
    task.first_block = static_cast<std::int32_t>(range.begin);
    task.end_block = static_cast<std::int32_t>(range.end);
    task.partial_at = is_split ? schedule.n_partial_floats : -1;
    if (is_split) schedule.n_partial_floats += rows_of_tile(path) * (head_dim + 2);
    schedule.tasks[index].push_back(task);
  }
}

void add_item(const AttentionArgs& args, std::size_t index, bool mma, Schedule& schedule) {
  const AttentionItem& item = args.items[index];
  if (item.q.size() == 0 || item.blocks.empty()) return;
  const std::int64_t n_rows = item.q.dim(0) * item.q.dim(1);
  require(n_rows <= std::int64_t{1} << 30, "attention: an item of more than 2^30 rows");
  // Heads of a sequence have their positions in common.
  const AttentionItem* before = index > 0 ? &args.items[index - 1] : nullptr;
  const bool has_same_positions = !schedule.items.empty() && before != nullptr &&
                                  before->q.size() > 0 && !before->blocks.empty() &&
                                  before->q_positions.data() == item.q_positions.data() &&
                                  before->q_positions.size() == item.q_positions.size();
  const auto positions_at = has_same_positions
                                ? schedule.items.back().positions_at
                                : static_cast<std::int64_t>(schedule.positions.size());
  if (!has_same_positions) {
    schedule.positions.insert(schedule.positions.end(), item.q_positions.begin(),
                              item.q_positions.end());
  }
  schedule.items.push_back({.q = item.q.data(),
                            .q_token_stride = item.q.stride(0),
                            .q_head_stride = item.q.stride(1),
                            .gqa_group = item.q.dim(1),
                            .n_rows = n_rows,
                            .positions_at = positions_at,
                            .blocks_at = static_cast<std::int64_t>(schedule.blocks.size()),
                            .sink = std::min(item.mask.sink, kMostDistance),
                            .recent = std::min(item.mask.recent, kMostDistance),
                            .state = state_ref(item.state)});
  schedule.blocks.insert(schedule.blocks.end(), item.blocks.begin(), item.blocks.end());
  const Path path = path_of(mma, n_rows);
  const std::int64_t n_tiles = ceil_div(n_rows, rows_of_tile(path));
  const bool sorted = ascends(item.blocks);
  // The last queries see the most keys: longest tasks first.
  for (std::int64_t tile = n_tiles - 1; tile >= 0; --tile) {
    const std::int64_t first_row = tile * rows_of_tile(path);
    const AttentionTask task = {.item = static_cast<std::int32_t>(schedule.items.size() - 1),
                                .first_row = static_cast<std::int32_t>(first_row),
                                .n_rows = static_cast<std::int32_t>(
                                    std::min<std::int64_t>(rows_of_tile(path), n_rows - first_row)),
                                .first_block = 0,
                                .end_block = 0,
                                .partial_at = -1};
    add_tile(item, path, task, sorted, n_tiles, args.shape.head_dim, schedule);
  }
}

constexpr int kMergeThreads = 256;

// Merges the partial states of a tile's ranges into the item's state, in their order. grid.x is the
// split, grid.y a group of rows, a warp for each row. Shared: [warps, 64] weights.
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

// Parts of one upload: a copy each would cost more than its bytes.
class Parcel {
 public:
  template <typename T>
  std::size_t add(const std::vector<T>& values) {
    const std::size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

template <typename T>
const T* part(const std::byte* base, std::size_t at) {
  return reinterpret_cast<const T*>(base + at);
}

void run_path(Stream& stream, Path path, KvType type, const AttentionWork& work) {
  if (path == Path::kSimt) return attention_simt(stream, work);
  const TilePurpose purpose = path == Path::kDecode ? TilePurpose::kDecode : TilePurpose::kPrefill;
  switch (type) {
    case KvType::kBf16:
      return attention_mma_bf16(stream, purpose, work);
    case KvType::kInt8:
      return attention_mma_int8(stream, purpose, work);
    case KvType::kInt4:
      return attention_mma_int4(stream, purpose, work);
    case KvType::kF32:
      break;
  }
  throw Error(ErrorCode::kInternal, "attention: no kernel for f32 on tensor cores");
}

void check_alignment(const AttentionArgs& args) {
  for (const AttentionItem& item : args.items) {
    for (const KvBlockRef& block : item.blocks) {
      require(reinterpret_cast<std::uintptr_t>(block.data) % 16 == 0,
              "attention: blocks in GPU memory must be aligned to 16 bytes");
    }
  }
}

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  check_alignment(args);
  const bool mma = has_mma_kernel(args.shape, stream.device().shared_bytes);
  Schedule schedule;
  for (std::size_t i = 0; i < args.items.size(); ++i) add_item(args, i, mma, schedule);
  Parcel parcel;
  const std::size_t items_at = parcel.add(schedule.items);
  const std::size_t positions_at = parcel.add(schedule.positions);
  const std::size_t blocks_at = parcel.add(schedule.blocks);
  std::size_t tasks_at[3];
  std::size_t splits_at[3];
  for (int p = 0; p < 3; ++p) {
    tasks_at[p] = parcel.add(schedule.tasks[p]);
    splits_at[p] = parcel.add(schedule.splits[p]);
  }
  if (schedule.items.empty()) return;
  const std::byte* base = stream.upload(parcel.bytes());
  std::byte* partials =
      stream.scratch(static_cast<std::size_t>(schedule.n_partial_floats) * sizeof(float));
  for (const Path path : kPaths) {
    const auto p = static_cast<std::size_t>(path);
    const AttentionWork work = {.items = part<AttentionItemRef>(base, items_at),
                                .tasks = part<AttentionTask>(base, tasks_at[p]),
                                .positions = part<std::int64_t>(base, positions_at),
                                .blocks = part<KvBlockRef>(base, blocks_at),
                                .partials = reinterpret_cast<float*>(partials),
                                .n_tasks = static_cast<std::int64_t>(schedule.tasks[p].size()),
                                .block_size = args.shape.block_size,
                                .head_dim = args.shape.head_dim,
                                .k = k_part(args.shape),
                                .v = v_part(args.shape),
                                .sm_scale = args.sm_scale};
    if (work.n_tasks == 0) continue;
    run_path(stream, path, args.shape.k_type, work);
    const std::int64_t tile = rows_of_tile(path);
    launch(stream, "attention: merge", merge_ranges_kernel,
           {.x = static_cast<std::int64_t>(schedule.splits[p].size()),
            .y = ceil_div(tile, kMergeThreads / kWarp),
            .block = kMergeThreads,
            .shared_bytes = kMergeThreads / kWarp * kMostRanges * sizeof(float)},
           work, part<AttentionSplit>(base, splits_at[p]), tile);
  }
}

}  // namespace longhaul::cuda
